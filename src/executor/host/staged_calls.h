// A call as a sequence of stages. The parts of a stage run concurrently; the stages run one after the other.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "executor/host/plan_run.h"
#include "executor/host/transfer.h"

namespace narrowcast::executor::host {

// Transfers on one ring, which run in order.
using Queue = std::vector<std::unique_ptr<Transfer>>;

struct Stage {
  CallTag tag;
  // Its parts: a plan, a comparison of the calls, and transfers. Small calls allocate little memory.
  PlanRun* plan = nullptr;
  const Call* call = nullptr;  // that the plan runs
  std::optional<CompareCalls> comparison;
  std::vector<Queue> queues;

  template <typename T, typename... Arguments>
  void add(Arguments&&... arguments) {
    queues.emplace_back().push_back(std::make_unique<T>(std::forward<Arguments>(arguments)...));
  }
};

// The stages of all calls of one communicator in a launch.
struct StagedCalls {
  Communicator* comm;
  std::vector<Stage> stages;
};

// Appends the stages of a call that runs a plan: every collective except all_to_all_v. Error: that of preparing the
// plan.
ncast_status add_plan(const Call& call, StagedCalls* staged);

void add_all_to_all_v(const Call& call, StagedCalls* staged);

// Appends all sends and receives of a group, in one stage. The caller has checked that sends from this rank to itself
// match their receives.
void add_sends_and_receives(std::span<const Call* const> calls, StagedCalls* staged);

// The address of a value in a buffer. NULL if the buffer is NULL.
inline const std::byte* at(const void* buffer, ncast_dtype dtype, uint64_t elem) {
  return buffer == nullptr ? nullptr : static_cast<const std::byte*>(buffer) + elem * ncast_dtype_bytes(dtype);
}
inline std::byte* at(void* buffer, ncast_dtype dtype, uint64_t elem) {
  return buffer == nullptr ? nullptr : static_cast<std::byte*>(buffer) + elem * ncast_dtype_bytes(dtype);
}

}  // namespace narrowcast::executor::host
