#include "comm/levels/communicator.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bootstrap/background_thread.h"
#include "comm/launch.h"
#include "comm/levels/prediction.h"
#include "comm/levels/steps.h"
#include "executor/backend.h"
#include "executor/launch_apart.h"
#include "executor/registry.h"
#include "status/error.h"

namespace narrowcast::comm {

using namespace executor;

namespace {

constexpr auto watch_interval = std::chrono::milliseconds(50);

// What predictions depend on.
struct Basis {
  Basis() = default;
  Basis(const select::Decider& within, const select::Decider& between, bool overlaps)
      : traits{within.traits(), between.traits()}, costs{hash_of(within), hash_of(between)}, overlaps(overlaps) {}
  static size_t hash_of(const select::Decider& decider) { return std::hash<std::string>()(decider.costs()->text()); }
  bool operator==(const Basis&) const = default;

  select::CommTraits traits[2] = {};
  size_t costs[2] = {};
  bool overlaps = false;
};
static_assert(std::is_trivially_copyable_v<Basis>);

void add(const Counters& from, Counters* to) {
  to->scratch_bytes += from.scratch_bytes;
  to->network_bytes += from.network_bytes;
  for (size_t i = 0; i < from.operations.size(); ++i) {
    to->operations[i].raw_bytes += from.operations[i].raw_bytes;
    to->operations[i].wire_bytes += from.operations[i].wire_bytes;
  }
}

}  // namespace

Levels::Levels(ncast_backend backend, LevelShape shape, bool rounds_partial_sums, LevelComms comms)
    : ncast_comm(backend, comms.all->rank(), comms.all->ranks()),
      shape_(shape),
      rounds_partial_sums_(rounds_partial_sums),
      comms_(std::move(comms)),
      pairs_(*comms_.all) {
  of_level_[0] = {within()};
  const Levels* const next = levels_between();
  of_level_[1] = next == nullptr ? std::vector{between()} : next->of_level_[1];
  if (next != nullptr) of_level_[1].push_back(next->within());
}

Levels::~Levels() { leave_ranks(); }

ncast_status Levels::start(bootstrap::Limit limit) {
  if (ncast_status status = find_backend(backend())->make_local_work(within()->config(), &work_)) return status;
  if (ncast_status status = work_->allocate(areas * area_bytes, &memory_)) return status;
  uint32_t ctas = 0;
  for (const auto& level : of_level_)
    for (ncast_comm* const comm : level) ctas += comm->decider()->traits().max_ctas;
  overlaps_ = work_->may_overlap(ctas);
  if (ncast_status status = start_predictions()) return status;
  comms_.all->set_limit(limit);
  return bootstrap::start_background_thread("ncast levels", [this] { watch(); }, &watcher_);
}

// Predictions are the same on all ranks, although the ranks of other groups may have other deciders.
ncast_status Levels::start_predictions() {
  const Basis own(*within()->decider(), *between()->decider(), overlaps_);
  std::vector<Basis> all(static_cast<size_t>(ranks()));
  if (ncast_status status = exchange(&own, sizeof own, all.data())) return status;
  const bool are_alike = std::ranges::all_of(all, [&](const Basis& one) { return one == own; });
  set_decider({.ranks = ranks(), .link = select::Link::two_levels},
              are_alike ? *between()->decider()->costs() : select::CostModel(),
              levels_of(shape_, rounds_partial_sums_, within()->decider(), between()->decider(), are_alike, overlaps_));
  if (are_alike) pairs_.set_costs(*between()->decider()->costs());
  return NCAST_OK;
}

void Levels::set_costs(select::CostModel costs) {
  for (ncast_comm* const level : {within(), between()}) set_costs_of_part(*level, costs);
  pairs_.set_costs(costs);
  decider()->set_costs(std::move(costs));
}

void Levels::watch() {
  std::unique_lock lock(mutex_);
  while (!leaving_.wait_for(lock, watch_interval, [this] { return is_leaving_; })) {
    lock.unlock();
    const ncast_status status = check_error();
    lock.lock();
    if (status != NCAST_OK) return;
  }
}

void Levels::set_error(ncast_status status, std::string message) {
  const ncast_status cause = cause_of(status, &message);
  end_calls(cause, message);
}

void Levels::end_calls(ncast_status status, const std::string& message) {
  {
    const std::lock_guard lock(mutex_);
    if (error_ != NCAST_OK) return;
    error_ = status;
    message_ = message;
  }
  comms_.all->publish_failure(status, message.c_str());
  static_cast<void>(within()->abort());
  static_cast<void>(between()->abort());
  pairs_.abort();
}

// If another rank has failed, the rendezvous says which, and why.
ncast_status Levels::cause_of(ncast_status status, std::string* message) const {
  const int attempts = status == NCAST_REMOTE_ERROR ? 100 : status == NCAST_ABORTED ? 10 : 1;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (const ncast_status found = comms_.all->check_failure()) {
      *message = ncast_last_error();
      return found;
    }
  }
  return status;
}

ncast_status Levels::check_own_error() const {
  const std::lock_guard lock(mutex_);
  return error_ == NCAST_OK ? NCAST_OK : fail(error_, "%s", message_.c_str());
}

std::vector<ncast_comm*> Levels::parts() const {
  std::vector<ncast_comm*> parts{between(), within()};
  for (const auto& [peer, comm] : pairs_.comms()) parts.push_back(comm);
  return parts;
}

// In messages about it, before its own.
std::string Levels::ranks_of(const ncast_comm* part) const {
  if (part == within()) return "within a group, where ranks are numbered from 0: ";
  for (const auto& [peer, comm] : pairs_.comms()) {
    if (comm != part) continue;
    return "between ranks " + std::to_string(std::min(rank(), peer)) + " and " +
           std::to_string(std::max(rank(), peer)) + ", here numbered 0 and 1: ";
  }
  return "between groups of ranks, where ranks are numbered by group: ";
}

ncast_status Levels::check_error() {
  if (ncast_status status = check_own_error()) return status;
  if (const ncast_status status = comms_.all->check_failure()) {
    set_error(status, ncast_last_error());
    return check_own_error();
  }
  for (ncast_comm* const part : parts()) {
    const ncast_status status = part->check_error();
    if (status != NCAST_OK) set_error(status, ranks_of(part) + ncast_last_error());
  }
  return check_own_error();
}

ncast_status Levels::call_error() {
  const std::vector<ncast_comm*> all = parts();
  const bool failed = std::ranges::any_of(all, [](ncast_comm* part) { return part->call_error() != NCAST_OK; });
  {
    const std::lock_guard lock(mutex_);
    if (!failed && !call_failed_) return NCAST_OK;
  }
  return check_error();
}

ncast_status Levels::abort() {
  {
    const std::lock_guard lock(mutex_);
    call_failed_ = true;
  }
  end_calls(NCAST_ABORTED, "aborted");
  return NCAST_OK;
}

Counters Levels::counters() const {
  Counters counters;
  for (const ncast_comm* const part : parts()) add(part->counters(), &counters);
  counters.scratch_bytes += areas * area_bytes;
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < calls_.size(); ++i) counters.operations[i].calls = calls_[i];
  return counters;
}

ncast_status Levels::prepare_plan(const plan::Plan&, const plan::verify::Report&, ncast_dtype, ncast_redop,
                                  std::unique_ptr<LoadedPlan>*) {
  return fail(NCAST_UNSUPPORTED, "communicators of two levels do not run plans; %s", one_level_hint);
}

ncast_status Levels::exchange(const void* mine, size_t bytes, void* all) {
  if (ncast_status status = check_own_error()) return status;
  return comms_.all->all_gather(mine, bytes, all);
}

ncast_status Levels::wait_until_idle() {
  ncast_status first = NCAST_OK;
  for (ncast_comm* const part : parts()) {
    const ncast_status status = part->wait_until_idle();
    if (first == NCAST_OK) first = status;
  }
  return first;
}

void Levels::leave_ranks() {
  {
    const std::lock_guard lock(mutex_);
    is_leaving_ = true;
  }
  leaving_.notify_all();
  if (watcher_.joinable()) watcher_.join();
}

ncast_status Levels::check(const Call& call) const {
  if (backend() != NCAST_BACKEND_HOST || call.stream == nullptr) return NCAST_OK;
  return fail(NCAST_UNSUPPORTED, "%s: communicators of two levels on the backend host do not have streams; %s",
              function_of(call), one_level_hint);
}

ncast_status Levels::launch(std::span<const Call> calls) {
  for (const Call& call : calls)
    if (ncast_status status = check(call)) return status;
  const std::lock_guard launching(launching_);
  const ncast_status status = run(calls);
  {
    const std::lock_guard lock(mutex_);
    for (const Call& call : calls) ++calls_[static_cast<size_t>(call.operation)];
    if (status != NCAST_OK) call_failed_ = true;
  }
  if (status == NCAST_OK) return NCAST_OK;
  set_error(status, ncast_last_error());  // other ranks may be waiting for a step that was not launched
  return check_own_error();
}

ncast_status Levels::run(std::span<const Call> calls) {
  std::vector<Call> transfers;
  for (const Call& call : calls) {
    if (operation::is_point_to_point(call.operation)) {
      transfers.push_back(call);
      continue;
    }
    if (call.operation == Operation::all_to_all_v) {
      if (ncast_status status = send_and_receive(messages_of(call))) return status;
      continue;
    }
    if (ncast_status status = work_->enter(call.stream)) return status;
    if (ncast_status status = take_steps(shape_, rounds_partial_sums_, *this, call)) return status;
    if (ncast_status status = work_->leave(call.stream)) return status;
  }
  return send_and_receive(transfers);
}

ncast_status Levels::take(Call call, bool is_between, int) {
  call.comm = is_between ? between() : within();
  if (ncast_status status = submit(call)) return status;
  for (ncast_comm* const one : of_level_[is_between])
    for (ncast_comm* const other : of_level_[!is_between])
      if (ncast_status status = work_->stop_after_failure(one, other, call.stream)) return status;
  return NCAST_OK;
}

ncast_status launch_levels(const std::vector<Call>& calls) {
  if (ncast_status status = Levels::connect(calls)) return status;
  return launch_apart(calls, communicators_of(calls), &Call::comm,
                      [](ncast_comm* comm, const auto& those) { return static_cast<Levels*>(comm)->launch(those); });
}

}  // namespace narrowcast::comm
