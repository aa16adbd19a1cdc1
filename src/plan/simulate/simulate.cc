#include "plan/simulate/simulate.h"

#include <algorithm>

#include "plan/simulate/batches.h"
#include "plan/simulate/kernel.h"
#include "plan/simulate/simulation.h"
#include "status/error.h"

namespace narrowcast::plan::simulate {
namespace {

// Long calls: simulates the first micro-batches at kernel granularity and extrapolates.
bool extrapolate(const Plan& plan, const Machine& machine, const Options& options, const Batches& batches,
                 double full_batches, Prediction* times) {
  const double chunk_bytes = static_cast<double>(options.piece_bytes) / plan.chunks / full_batches;
  const uint32_t all = options.max_batches, half = all / 2;
  Prediction first_half;
  Batches some = batches;
  some.chunk_bytes = chunk_bytes;
  some.count = half;
  some.workers = std::min(batches.workers, half);
  if (!simulate_batches(plan, machine, options, some, &first_half)) return false;
  some.count = all;
  some.workers = batches.workers;
  if (!simulate_batches(plan, machine, options, some, times)) return false;
  const double others = (full_batches - all) / (all - half);
  times->microseconds += others * std::max(0.0, times->microseconds - first_half.microseconds);
  times->repeated_us += others * std::max(0.0, times->repeated_us - first_half.repeated_us);
  return true;
}

// Replaces the times of a prediction that was made with other micro-batches and has the steps and busy times.
void stretch(const Prediction& times, Prediction* prediction) {
  const double factor = times.microseconds / prediction->microseconds;
  for (Activity& activity : prediction->groups) activity.busy_us *= factor;
  for (Interval& interval : prediction->timeline) {
    interval.begin *= factor;
    interval.end *= factor;
  }
  prediction->microseconds = times.microseconds;
  prediction->repeated_us = times.repeated_us;
}

}  // namespace

ncast_status simulate(const Plan& plan, const Machine& given, const Options& options, Prediction* prediction) {
  if (plan.rank_count() > given.gpus())
    return fail(NCAST_INVALID_ARGUMENT, "plan: %d ranks, but the machine has %d GPUs", plan.rank_count(), given.gpus());
  *prediction = {};
  if (plan.chunks == 0) return fail(NCAST_INVALID_ARGUMENT, "plan: chunks is 0");
  const Machine machine = used_by_kernel(plan, given, options);
  const Batches batches = batches_of(plan, machine, options);
  bool completes = simulate_batches(plan, machine, options, batches, prediction);
  if (completes && options.extrapolates) {
    Options only_times = options;
    only_times.records_timeline = false;
    const double full_batches = full_batches_of(plan, machine, options);
    Prediction times;
    if (batches.count > 1 && batches.count == options.max_batches && full_batches > batches.count) {
      completes = extrapolate(plan, machine, only_times, batches, full_batches, &times);
      stretch(times, prediction);
    } else if (options.records_timeline) {
      completes = simulate_batches(plan, machine, only_times, batches, &times);
      stretch(times, prediction);
    }
  }
  return completes ? NCAST_OK : fail(NCAST_INVALID_ARGUMENT, "plan: it does not complete; verify it");
}

}  // namespace narrowcast::plan::simulate
