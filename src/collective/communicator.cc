#include "collective/communicator.h"

#include "status/error.h"

using narrowcast::fail;

ncast_comm::ncast_comm(std::unique_ptr<narrowcast::channel::World> its_world,
                       const narrowcast::collective::StagingShape& shape, narrowcast::channel::Limit its_limit)
    : world(std::move(its_world)),
      limit(its_limit),
      staging(shape),
      sends(static_cast<size_t>(world->ranks())),
      receives(static_cast<size_t>(world->ranks())) {}

uint64_t ncast_comm::take_ticket() {
  const std::lock_guard lock(mutex_);
  return next_ticket_++;
}

void ncast_comm::wait_for_turn(uint64_t ticket) {
  std::unique_lock lock(mutex_);
  turn_ended_.wait(lock, [&] { return turn_ == ticket; });
}

void ncast_comm::end_turn() {
  // Notified under the lock: the communicator may be freed as soon as the last turn has ended.
  const std::lock_guard lock(mutex_);
  ++turn_;
  turn_ended_.notify_all();
}

void ncast_comm::wait_until_idle() {
  std::unique_lock lock(mutex_);
  turn_ended_.wait(lock, [&] { return turn_ == next_ticket_; });
}

void ncast_comm::set_error(ncast_status status, const char* sentence) {
  {
    const std::lock_guard lock(mutex_);
    if (error_ == NCAST_OK) {
      error_ = status;
      sentence_ = sentence;
    }
  }
  world->publish_failure(status, sentence);
}

ncast_status ncast_comm::check_error() {
  const std::lock_guard lock(mutex_);
  if (error_ != NCAST_OK) return fail(error_, "%s", sentence_.c_str());
  error_ = world->check_failure();
  if (error_ != NCAST_OK) sentence_ = ncast_last_error();
  return error_;
}

void ncast_comm::abort() { world->publish_failure(NCAST_ABORTED, "aborted"); }

void ncast_comm::count_calls(uint64_t calls) {
  const std::lock_guard lock(mutex_);
  counters_.calls += calls;
}

void ncast_comm::count_sent(uint64_t raw_bytes, uint64_t wire_bytes) {
  const std::lock_guard lock(mutex_);
  counters_.raw_bytes += raw_bytes;
  counters_.wire_bytes += wire_bytes;
}

ncast_comm_counters ncast_comm::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}
