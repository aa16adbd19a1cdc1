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

void DestroyComm::operator()(ncast_comm* comm) const {
  static_cast<void>(destroy_communicator("ncast_comm_destroy", comm));
}

Levels::Levels(ncast_backend backend, LevelShape shape, bool rounds_partial_sums, LevelComms comms)
    : ncast_comm(backend, comms.all->rank(), comms.all->ranks()),
      shape_(shape),
      rounds_partial_sums_(rounds_partial_sums),
      comms_(std::move(comms)) {
  parts_[0] = {within()};
  const Levels* const next = levels_between();
  parts_[1] = next == nullptr ? std::vector{between()} : next->parts_[1];
  if (next != nullptr) parts_[1].push_back(next->within());
}

Levels::~Levels() { leave_ranks(); }

ncast_status Levels::start(bootstrap::Limit limit) {
  if (ncast_status status = find_backend(backend())->make_local_work(within()->config(), &work_)) return status;
  if (ncast_status status = work_->allocate(areas * area_bytes, &memory_)) return status;
  uint32_t ctas = 0;
  for (const auto& level : parts_)
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
  return NCAST_OK;
}

void Levels::set_costs(select::CostModel costs) {
  for (ncast_comm* const level : {within(), between()}) {
    const select::Link link = level->decider()->traits().link;
    const bool has_network = select::is_between_hosts(link) && costs.network_gbps();
    if (level->has_levels() || costs.is_measured(link) || has_network) level->set_costs(costs);
  }
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
}

// If another rank has failed, the rendezvous says which, and why.
ncast_status Levels::cause_of(ncast_status status, std::string* message) const {
  const bool is_remote = status == NCAST_REMOTE_ERROR || status == NCAST_ABORTED;
  for (int attempt = 0; attempt < (is_remote ? 10 : 1); ++attempt) {
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

ncast_status Levels::check_error() {
  if (ncast_status status = check_own_error()) return status;
  if (const ncast_status status = comms_.all->check_failure()) {
    set_error(status, ncast_last_error());
    return check_own_error();
  }
  const std::pair<ncast_comm*, const char*> levels[] = {
      {between(), "between groups of ranks, where ranks are numbered by group: "},
      {within(), "within a group, where ranks are numbered from 0: "}};
  for (const auto& [comm, where] : levels) {
    const ncast_status status = comm->check_error();
    if (status != NCAST_OK) set_error(status, where + std::string(ncast_last_error()));
  }
  return check_own_error();
}

ncast_status Levels::call_error() {
  const bool failed = within()->call_error() != NCAST_OK || between()->call_error() != NCAST_OK;
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
  add(within()->counters(), &counters);
  add(between()->counters(), &counters);
  counters.scratch_bytes += areas * area_bytes;
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < calls_.size(); ++i) counters.operations[i].calls = calls_[i];
  return counters;
}

ncast_status Levels::exchange(const void* mine, size_t bytes, void* all) {
  if (ncast_status status = check_own_error()) return status;
  return comms_.all->all_gather(mine, bytes, all);
}

ncast_status Levels::wait_until_idle() {
  const ncast_status first = between()->wait_until_idle(), second = within()->wait_until_idle();
  return first != NCAST_OK ? first : second;
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
  const char* const function = function_of(call);
  if (call.operation == Operation::all_to_all_v)
    return fail(NCAST_UNSUPPORTED, "%s: communicators of two levels do not have it", function);
  if (backend() == NCAST_BACKEND_HOST && call.stream != nullptr)
    return fail(NCAST_UNSUPPORTED, "%s: communicators of two levels on the backend host do not have streams", function);
  if (!operation::is_point_to_point(call.operation) || reaches(call.peer)) return NCAST_OK;
  return fail(NCAST_UNSUPPORTED,
              "%s: rank %d cannot exchange messages with rank %d: with two levels, only ranks of one group and ranks "
              "with the same index in their groups can",
              function, rank(), call.peer);
}

bool Levels::reaches(int peer) const {
  if (group_of(peer) == shape_.group) return true;
  if (index_of(peer) != shape_.index) return false;
  const Levels* const next = levels_between();
  return next == nullptr || next->reaches(group_of(peer));
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
    if (ncast_status status = work_->enter(call.stream)) return status;
    if (ncast_status status = take_steps(shape_, rounds_partial_sums_, *this, call)) return status;
    if (ncast_status status = work_->leave(call.stream)) return status;
  }
  return transfers.empty() ? NCAST_OK : send_and_receive(transfers);
}

ncast_status Levels::take(Call call, bool is_between, int) {
  call.comm = is_between ? between() : within();
  if (ncast_status status = submit(call)) return status;
  for (ncast_comm* const one : parts_[is_between])
    for (ncast_comm* const other : parts_[!is_between])
      if (ncast_status status = work_->stop_after_failure(one, other, call.stream)) return status;
  return NCAST_OK;
}

// Those of a group first, on all ranks: kernels of the two levels run one after the other, and ranks that began with
// different levels could wait for each other in a circle.
ncast_status Levels::send_and_receive(std::span<const Call> calls) {
  if (ncast_status status = start_group()) return status;
  for (const bool is_local : {true, false}) {
    for (Call call : calls) {
      if ((group_of(call.peer) == shape_.group) != is_local) continue;
      call.comm = is_local ? within() : between();
      call.peer = is_local ? index_of(call.peer) : group_of(call.peer);
      static_cast<void>(submit(call));  // an error is that of the group
    }
  }
  return end_group("ncast_group_end", true);
}

ncast_status launch_levels(const std::vector<Call>& calls) {
  return launch_apart(calls, communicators_of(calls), &Call::comm,
                      [](ncast_comm* comm, const auto& those) { return static_cast<Levels*>(comm)->launch(those); });
}

}  // namespace narrowcast::comm
