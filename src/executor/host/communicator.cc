#include "executor/host/communicator.h"

#include "bootstrap/interrupt.h"
#include "executor/host/launch.h"
#include "executor/host/load_plan.h"
#include "executor/host/plans.h"
#include "select/frames.h"
#include "status/error.h"

namespace narrowcast::executor::host {

namespace {

std::vector<int> levels_of(const channel::World& world) {
  std::vector<int> hosts;
  if (world.hosts() == 1 || world.hosts() == world.ranks()) return hosts;
  for (int rank = 0; rank < world.ranks(); ++rank) hosts.push_back(world.host_of(rank));
  return hosts;
}

}  // namespace

Communicator::Communicator(std::unique_ptr<channel::World> joined_world, const StagingShape& shape,
                           bootstrap::Limit wait_limit, const select::Options& options, select::CostModel costs)
    : ncast_comm(NCAST_BACKEND_HOST, joined_world->rank(), joined_world->ranks()),
      world(std::move(joined_world)),
      levels(levels_of(*world)),
      rounds_partial_sums(options.rounds_partial_sums),
      limit(wait_limit),
      staging(shape),
      sends(static_cast<size_t>(world->ranks())),
      receives(static_cast<size_t>(world->ranks())),
      plans(std::make_unique<Plans>(*this)) {
  counters_.scratch_bytes = shape.bytes(world->ranks());
  set_decider({.ranks = world->ranks(),
               .link = world->hosts() > 1 ? select::Link::network : select::Link::shared_memory,
               .has_levels = !levels.empty()},
              std::move(costs));
}

Communicator::~Communicator() = default;

channel::RankSet Communicator::all_peers() const {
  return (~channel::RankSet{0} >> (64 - ranks())) & ~channel::rank_bit(rank());
}

uint64_t Communicator::take_ticket() {
  const std::lock_guard lock(mutex_);
  return next_ticket_++;
}

ncast_status Communicator::wait_for_turn(uint64_t ticket) {
  return wait_for([&] { return turn_ == ticket; });
}

void Communicator::end_turn() {
  // Notify under the lock, because the communicator may be freed as soon as the last turn has ended.
  const std::lock_guard lock(mutex_);
  ++turn_;
  turn_ended_.notify_all();
}

ncast_status Communicator::wait_until_idle() {
  return wait_for([&] { return turn_ == next_ticket_; });
}

// An interruption aborts the communicator, which ends the calls that this thread waits for.
template <typename Done>
ncast_status Communicator::wait_for(Done done) {
  std::unique_lock lock(mutex_);
  if (bootstrap::wait_or_interrupt(turn_ended_, lock, done)) return NCAST_OK;
  static_cast<void>(abort());
  turn_ended_.wait(lock, done);
  return bootstrap::interrupted();
}

void Communicator::set_error(ncast_status status, const char* message) {
  {
    const std::lock_guard lock(mutex_);
    if (error_ == NCAST_OK) {
      error_ = status;
      message_ = message;
    }
  }
  world->publish_failure(status, message);
}

ncast_status Communicator::check_error() {
  const std::lock_guard lock(mutex_);
  return error_ != NCAST_OK ? fail(error_, "%s", message_.c_str()) : world->check_failure();
}

ncast_status Communicator::call_error() {
  const std::lock_guard lock(mutex_);
  if (error_ != NCAST_OK) return fail(error_, "%s", message_.c_str());
  return aborted_ ? world->check_failure() : NCAST_OK;
}

ncast_status Communicator::check_alive(std::span<const int> ranks) {
  const channel::RankSet dead = world->dead();
  // A failure that a rank published before it ended is more informative, and is visible by now.
  if (ncast_status status = check_error()) return status;
  for (const int rank : ranks)
    if ((dead & channel::rank_bit(rank)) != 0) return world->fail_of_dead(rank);
  return NCAST_OK;
}

ncast_status Communicator::abort() {
  aborted_ = true;
  world->publish_failure(NCAST_ABORTED, "aborted");
  return NCAST_OK;
}

ncast_status Communicator::exchange(const void* mine, size_t bytes, void* all) {
  Call call{Operation::all_gather};
  call.send = mine;
  call.recv = all;
  call.count = bytes;
  call.dtype = NCAST_UINT8;
  call.comm = this;
  const select::CallShape shape = decider()->shape_of(call.operation, call.dtype, call.codec, bytes);
  call.built_in_plan = select::plan_of_frames(shape, true);
  return launch({call});
}

ncast_status Communicator::prepare_plan(const plan::Plan& plan, const plan::verify::Report& proof,
                                        ncast_dtype /*dtype*/, ncast_redop op, std::unique_ptr<LoadedPlan>* prepared) {
  return host::prepare_plan(*this, plan, proof, op, prepared);
}

void Communicator::count_call(Operation operation) {
  const std::lock_guard lock(mutex_);
  ++counters_.operations[static_cast<size_t>(operation)].calls;
}

void Communicator::count_sent(Operation operation, uint64_t raw_bytes, uint64_t wire_bytes) {
  const std::lock_guard lock(mutex_);
  ncast_operation_counters& counters = counters_.operations[static_cast<size_t>(operation)];
  counters.raw_bytes += raw_bytes;
  counters.wire_bytes += wire_bytes;
}

void Communicator::count_crossed(uint64_t wire_bytes) {
  const std::lock_guard lock(mutex_);
  counters_.network_bytes += wire_bytes;
}

Counters Communicator::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace narrowcast::executor::host
