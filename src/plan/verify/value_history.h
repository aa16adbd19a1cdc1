// How values came about, to explain a fault.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/verify/contributions.h"
#include "plan/verify/flat_plan.h"

namespace narrowcast::plan::verify {

class ValueHistory {
 public:
  // A value that a step has computed from others; none: from one without a history. Returns its number.
  uint32_t add(uint32_t flat, Contributions::Set set, std::span<const uint32_t> sources);

  // The last steps that a value went through, in order. contribution: follow this one, if there is one, back to its
  // origin.
  std::vector<uint32_t> path_to(uint32_t value, const Contributions& contributions,
                                Contributions::Contribution contribution) const;
  // The steps of the summands that a step combined, and that step.
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
