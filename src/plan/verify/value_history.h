// The history of values, for traces.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/verify/contributions.h"
#include "plan/verify/flat_plan.h"

namespace narrowcast::plan::verify {

class ValueHistory {
 public:
  // Adds a value that a step has computed from others, and returns its number. Sources without a history are `none`.
  uint32_t add(uint32_t flat, Contributions::Set set, std::span<const uint32_t> sources);

  // The last steps that a value went through, in order. contribution: if any, the one to follow back to its origin.
  std::vector<uint32_t> path_to(uint32_t value, const Contributions& contributions,
                                Contributions::Contribution contribution) const;
  // The steps that produced the summands of a step, and that step.
  std::vector<uint32_t> sum_of(uint32_t flat) const;

 private:
  struct Node {
    uint32_t flat;
    Contributions::Set set;
    std::vector<uint32_t> sources;
  };
  HeldMemory memory_;
  std::vector<Node> nodes_;
};

}  // namespace narrowcast::plan::verify
