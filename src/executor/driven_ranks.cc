#include "executor/driven_ranks.h"

#include <algorithm>
#include <atomic>

#include "executor/communicator.h"
#include "status/error.h"

namespace narrowcast::executor {
namespace {

// Unlike std::thread::id, never that of an earlier thread.
uint64_t this_thread_number() {
  static std::atomic<uint64_t> last{0};
  thread_local const uint64_t number = ++last;
  return number;
}

}  // namespace

DrivenRanks::DrivenRanks(int ranks) : driver_(this_thread_number()), ranks_(static_cast<size_t>(ranks)) {
  for (Counts& counts : ranks_) {
    counts.sends.resize(ranks_.size());
    counts.receives.resize(ranks_.size());
  }
}

bool DrivenRanks::owns(const Call& call) const { return call.comm->driven_ranks().get() == this; }

uint64_t& DrivenRanks::counted(const Call& call) {
  Counts& own = ranks_[static_cast<size_t>(call.comm->rank())];
  const auto peer = static_cast<size_t>(call.peer);
  if (call.operation == Operation::send) return own.sends[peer];
  return call.operation == Operation::recv ? own.receives[peer] : own.collectives;
}

int DrivenRanks::missing_for(const Call& call) const {
  const auto rank = static_cast<size_t>(call.comm->rank()), peer = static_cast<size_t>(call.peer);
  const Counts& own = ranks_[rank];
  if (call.operation == Operation::send) return own.sends[peer] > ranks_[peer].receives[rank] ? call.peer : -1;
  if (call.operation == Operation::recv) return own.receives[peer] > ranks_[peer].sends[rank] ? call.peer : -1;
  const auto behind =
      std::ranges::find_if(ranks_, [&](const Counts& other) { return other.collectives < own.collectives; });
  return behind == ranks_.end() ? -1 : static_cast<int>(behind - ranks_.begin());
}

ncast_status DrivenRanks::admit(const char* function, std::span<const Call> calls, bool waits) {
  const std::lock_guard lock(mutex_);
  for (const Call& call : calls)
    if (owns(call)) ++counted(call);
  if (!waits || this_thread_number() != driver_) return NCAST_OK;
  for (const Call& call : calls) {
    const int missing = owns(call) ? missing_for(call) : -1;
    if (missing < 0) continue;
    for (const Call& other : calls)
      if (owns(other)) --counted(other);
    return fail(NCAST_INVALID_ARGUMENT,
                "%s: the %s of rank %d would wait for rank %d, which has not made the call: this thread drives all "
                "ranks, so make their calls in one group, or on streams",
                function, operation::name_of(call.operation), call.comm->rank(), missing);
  }
  return NCAST_OK;
}

ncast_status DrivenRanks::check_alone() const {
  if (ranks_.size() == 1 || this_thread_number() != driver_) return NCAST_OK;
  return fail(NCAST_INVALID_ARGUMENT,
              "the function waits until all %zu ranks have called it, and this thread drives all of them: call it in a "
              "thread of its own for each rank",
              ranks_.size());
}

ncast_status admit_calls(const char* function, std::span<const Call> calls) {
  const auto is_on_host = [](const Call& call) { return call.comm->backend() == NCAST_BACKEND_HOST; };
  const bool waits =
      std::ranges::any_of(calls, [&](const Call& call) { return is_on_host(call) && call.stream == nullptr; });
  std::vector<DrivenRanks*> admitted;
  for (const Call& call : calls) {
    DrivenRanks* const ranks = call.comm->driven_ranks().get();
    if (ranks == nullptr || !is_on_host(call) || std::ranges::find(admitted, ranks) != admitted.end()) continue;
    if (ncast_status status = ranks->admit(function, calls, waits)) return status;
    admitted.push_back(ranks);
  }
  return NCAST_OK;
}

}  // namespace narrowcast::executor
