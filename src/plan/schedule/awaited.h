// Dependences of steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "plan/ir.h"

namespace narrowcast::plan::schedule {

// Reduces the dependences of a step to the last one in each other group. Its own group runs in order anyway.
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
