#include "select/two_levels.h"

#include <algorithm>

#include "select/call_costs.h"

namespace narrowcast::select {
namespace {

// The time of steps of which each has this time. A step begins when those before it have ended: of its level, and of
// its part of the call.
template <typename Time>
double time_of(const std::vector<Step>& steps, bool overlap, Time time) {
  double levels[2] = {}, slots[2] = {};
  for (const Step& step : steps) {
    double& level = levels[overlap && step.is_between];
    level = slots[step.slot] = std::max(level, slots[step.slot]) + time(step.decision.predicted);
  }
  return std::max(levels[0], levels[1]);
}

// Local copies between the steps are not predicted: memory is faster than any link. Unknown if any step is.
Cost cost_of(const std::vector<Step>& steps, bool overlap) {
  for (const Step& step : steps)
    if (!step.decision.predicted.is_known() && step.shape.bytes != 0) return {};
  return {time_of(steps, overlap, [](const Cost& one) { return one.typical; }),
          time_of(steps, overlap, [](const Cost& one) { return std::max(one.incompressible, one.typical); })};
}

// Whole calls are measured with bfloat16 and the codecs that `auto` allows. Those of other types and codecs take as
// much longer, or shorter, as their steps are predicted to.
Cost adapted(double measured, const CallShape& shape, const Cost& of_steps, const TwoLevels& levels) {
  CallShape as_measured = shape;
  as_measured.dtype = NCAST_BFLOAT16;
  as_measured.codec = NCAST_CODEC_AUTO;
  as_measured.result_codec.reset();
  const Cost of_measured = as_measured == shape ? of_steps : cost_of(levels.steps_of(as_measured), levels.overlaps());
  if (!of_steps.is_known() || !of_measured.is_known()) return {measured, measured};
  const double factor = measured / of_measured.typical;
  return {of_steps.typical * factor, of_steps.incompressible * factor};
}

}  // namespace

Decision decide_two_levels(const CallShape& shape, const Policy& policy) {
  Decision decision;
  decision.candidate = candidates()[index_of("steps")].name;
  decision.transport_reason = "its communicator has two levels, within hosts and between them";
  decision.codec_reason = "that is best between hosts";
  if (shape.bytes == 0) {
    decision.codec_reason = "there are no values";
    return decision;
  }
  const std::vector<Step> steps = policy.levels->steps_of(shape);
  for (const Step& step : steps) {
    if (!step.is_between) continue;
    decision.codec_reason = step.decision.codec_reason;
    if (step.decision.codec == NCAST_CODEC_RAW) continue;
    decision.codec = step.decision.codec;
    if (shape.result_codec) decision.result_codec = shape.result_codec;
    break;
  }
  const Costs costs = costs_of(shape, policy.costs);
  decision.predicted = cost_of(steps, policy.levels->overlaps());
  if (const Cost& measured = costs[index_of("steps")]; measured.is_known())
    decision.predicted = adapted(measured.typical, shape, decision.predicted, *policy.levels);
  decision.nccl = costs[index_of("nccl")];
  decision.nccl_default = costs[index_of("nccl:default")];
  return decision;
}

}  // namespace narrowcast::select
