#include "select/plan_choice.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "select/codec_choice.h"

namespace narrowcast::select {
namespace {

// The plan that is predicted to be fastest, if it is faster than the built-in way.
PlanChoice choose_by_cost(const std::vector<const PlanCandidate*>& plans, const CallShape& shape,
                          const Decision& built_in, const Policy& policy) {
  PlanChoice choice;
  if (policy.transport != ForcedTransport::none) return choice;
  double fastest = built_in.predicted.typical * (1 - least_saved);
  for (const PlanCandidate* const plan : plans) {
    if (why_not_by_cost(*plan, shape) != nullptr) continue;
    const double microseconds = time_of(*plan, shape, policy, built_in.codec).microseconds;
    if (microseconds == 0 || microseconds > fastest) continue;
    choice = {plan, "it is predicted to be faster than the built-in way"};
    fastest = microseconds;
  }
  return choice;
}

}  // namespace

PlanTime time_of(const PlanCandidate& plan, const CallShape& shape, const Policy& policy, ncast_codec unmeasured) {
  PlanTime fastest{0, plan.codec.value_or(unmeasured)};
  for (const ncast_codec codec : codecs_by_cost(plan, shape)) {
    const auto measured =
        policy.costs.measured(shape.operation, cost_name_of(plan, codec), shape.bytes, shape.ranks, shape.link);
    if (measured && (fastest.microseconds == 0 || *measured < fastest.microseconds)) fastest = {*measured, codec};
  }
  return fastest;
}

PlanChoice choose_plan(const CallShape& shape, const Decision& built_in, const Policy& policy) {
  std::vector<const PlanCandidate*> able;
  for (const auto& plan : *policy.plans)
    if (plan->operation == shape.operation && why_not(*plan, shape) == nullptr) able.push_back(plan.get());
  if (able.empty()) return {};
  if (policy.selector != nullptr && *policy.selector) {
    const int selected = (*policy.selector)(shape, able);
    if (selected >= 0 && static_cast<size_t>(selected) < able.size())
      return {able[static_cast<size_t>(selected)], "the selector of the communicator chose it"};
    if (selected != Selected::by_cost) return {};
  }
  for (const PlanCandidate* const plan : able)
    if (plan->always) return {plan, "it was added for all such calls"};
  return choose_by_cost(able, shape, built_in, policy);
}

std::vector<Alternative> alternatives_of(const CallShape& shape, const Decision& decision, const Policy& policy) {
  std::vector<Alternative> list;
  if (policy.plans == nullptr || shape.bytes == 0 || shape.ranks == 1) return list;
  const auto is_able = [&](const PlanCandidate& plan) { return why_not(plan, shape) == nullptr; };
  const auto alternative = [&](const PlanCandidate& plan) -> Alternative {
    const double microseconds = time_of(plan, shape, policy, NCAST_CODEC_RAW).microseconds;
    if (&plan == decision.chosen) return {&plan, microseconds, nullptr};
    const char* why = why_not(plan, shape);
    if (why == nullptr) why = why_not_by_cost(plan, shape);
    if (why == nullptr && microseconds == 0) why = "its time was not measured";
    return {&plan, microseconds, why != nullptr ? why : "it is not predicted to be faster"};
  };
  for (const auto& plan : *policy.plans) {
    if (plan->operation != shape.operation) continue;
    // A plan that was prepared for several types has the same name each time.
    const auto same = std::ranges::find_if(list, [&](const Alternative& one) { return one.plan->name == plan->name; });
    if (same == list.end())
      list.push_back(alternative(*plan));
    else if (plan.get() == decision.chosen || (is_able(*plan) && !is_able(*same->plan)))
      *same = alternative(*plan);
  }
  return list;
}

}  // namespace narrowcast::select
