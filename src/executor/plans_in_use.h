// The loaded plans that the calls of a communicator may run.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "executor/loaded_plan.h"

namespace narrowcast::executor {

// Any thread.
class PlansInUse {
 public:
  // The number by which the plan is found: the same on all ranks, because they add the same plans in the same order.
  uint32_t add(LoadedPlan* plan) {
    const std::lock_guard lock(mutex_);
    plans_.push_back(plan);
    return static_cast<uint32_t>(plans_.size());
  }
  void remove(uint32_t number) {
    const std::lock_guard lock(mutex_);
    plans_[number - 1] = nullptr;
  }
  // NULL if it was removed.
  LoadedPlan* find(uint32_t number) const {
    const std::lock_guard lock(mutex_);
    return plans_[number - 1];
  }

 private:
  mutable std::mutex mutex_;
  std::vector<LoadedPlan*> plans_;
};

}  // namespace narrowcast::executor
