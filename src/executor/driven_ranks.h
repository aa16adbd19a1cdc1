// The ranks of a communicator that one thread created together and drives (ncast_comm_create_all). If a call of this
// thread waits for a rank whose call it has not made, nobody else will make it.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "executor/call.h"

namespace narrowcast::executor {

class DrivenRanks {
 public:
  // For the calling thread.
  explicit DrivenRanks(int ranks);

  // Counts calls of these ranks that are about to be launched, and refuses them all if this thread drives the ranks,
  // would wait for the calls to end, and has not made calls that they need. Calls of other communicators are ignored.
  // Error: INVALID_ARGUMENT, and nothing is counted.
  ncast_status admit(const char* function, std::span<const Call> calls, bool waits);

  // For functions that wait for the same function of all other ranks. Error: INVALID_ARGUMENT if this thread drives
  // them.
  ncast_status check_alone() const;

 private:
  // The calls of a rank since the communicator was created.
  struct Counts {
    uint64_t collectives = 0;
    std::vector<uint64_t> sends, receives;  // by peer
  };

  bool owns(const Call& call) const;
  // The count of the calls like this one.
  uint64_t& counted(const Call& call);
  // The rank whose call is missing; -1 if there is none.
  int missing_for(const Call& call) const;

  const uint64_t driver_;
  std::mutex mutex_;
  std::vector<Counts> ranks_;
};

// admit() for all communicators of calls on the host backend, which wait if one of them is on the NULL stream. Calls on
// GPUs never wait.
ncast_status admit_calls(const char* function, std::span<const Call> calls);

}  // namespace narrowcast::executor
