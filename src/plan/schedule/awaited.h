// What steps wait for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "plan/ir.h"

namespace narrowcast::plan::schedule {

// Of the steps that a step waits for, which are a range of ids, the last one of each group. Those of its own group are
// left out, as a group executes its steps in their order anyway.
template <typename Steps>
std::vector<StepId> last_of_each_group(const Steps& awaited, uint32_t own_group) {
  std::map<uint32_t, uint32_t> last;  // step by group
  for (const StepId id : awaited) {
    if (id.group == own_group) continue;
    uint32_t& step = last.try_emplace(id.group, id.step).first->second;
    step = std::max(step, id.step);
  }
  std::vector<StepId> result;
  result.reserve(last.size());
  for (const auto& [group, step] : last) result.push_back({group, step});
  return result;
}

}  // namespace narrowcast::plan::schedule
