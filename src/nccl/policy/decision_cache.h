// The decisions on a communicator's calls of late, of which programs make the same ones over and over: to ask the cost model
// takes longer than all else that is done for a call.
#pragma once

#include <array>
#include <mutex>
#include <optional>

#include "nccl/policy/decision.h"
#include "nccl/settings/settings.h"

namespace narrowcast::nccl {

class RecentDecisions {
 public:
  // As decide() says by what the ranks of `engine_comm` know, or by this process's settings where it is NULL. comm: always
  // the same. has_windows: as EnginePredictor's.
  Decision on(const Call& call, const CommunicatorTraits& comm, ncast_comm* engine_comm, bool has_windows);

 private:
  // What decide() looks at.
  struct Key {
    Operation operation;
    int dtype;
    size_t count;
    bool users_reduction, configured, has_windows;
    ncast_comm* engine_comm;
    bool operator==(const Key&) const = default;
  };
  struct Entry {
    Key key;
    Decision decision;
  };
  std::mutex mutex_;
  std::array<std::optional<Entry>, 64> entries_;
};

}  // namespace narrowcast::nccl
