// Decisions on recent calls of a communicator. Programs repeat their calls, and asking the cost model takes longer than
// everything else that the drop-in does for a call.
#pragma once

#include <array>
#include <mutex>
#include <optional>

#include "nccl/policy/decision.h"

namespace narrowcast::nccl {

class DecisionCache {
 public:
  // The result of decide() with the settings of this process. comm: the same in every call.
  Decision decide(const Call& call, const CommunicatorTraits& comm, const EngineState& engine);

 private:
  // Everything that a decision depends on.
  struct Key {
    Operation operation;
    int dtype;
    size_t count;
    bool is_user_reduction, has_config;
    EngineState engine;
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
