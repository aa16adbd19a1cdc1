// The search for plans in fewer groups, or less idle ones, that take no longer.
#pragma once

#include <cstdint>

#include "plan/ir.h"
#include "plan/schedule/counts.h"
#include "plan/schedule/schedule.h"
#include "plan/simulate/machine.h"

namespace narrowcast::plan::schedule {

inline constexpr double tolerance = 1e-9;  // of rounding in predicted times

// Plans get more instances only if a group is idle for long otherwise, and for calls of one micro-batch.
// They then have many steps, but short pipelines.
inline constexpr uint32_t few_instances = 4;

uint32_t most_groups(const Plan& plan);  // of a rank
uint64_t steps_of(const Plan& plan);

// What ResCCL reports is that no thread block is idle for more than 22% of the time.
bool is_idle(const Side& side);

// Whether it seems worthwhile to search for a plan that is less idle, or as good and much smaller.
bool is_open(const Result& result);

// Merges the groups of a proved plan. simulated_steps: of the ranks that are scheduled, 0 if groups cannot be divided.
ncast_status shrink(const Plan& plan, const simulate::Machine& machine, const Options& options, Result* result,
                    uint64_t* simulated_steps);

// Searches further, with `replicated`, a plan of so many replicas of the same operation, for plans that are not slower
// than `limit_us` and better than `best`.
ncast_status improve(const Plan& replicated, uint32_t replicas, const simulate::Machine& machine,
                     const Options& options, double limit_us, CountSearch* counts, Result* best,
                     uint64_t* simulated_steps);

}  // namespace narrowcast::plan::schedule
