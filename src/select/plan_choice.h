// Whether a plan runs a call instead of the built-in way, and with which codec.
#pragma once

#include <vector>

#include "select/decision.h"

namespace narrowcast::select {

struct PlanTime {
  double microseconds = 0;  // 0: not measured
  ncast_codec codec = NCAST_CODEC_RAW;
};

// The time of the plan with the fastest of its codecs. unmeasured: the codec of a plan that was not measured and states
// none.
PlanTime time_of(const PlanCandidate& plan, const CallShape& shape, const Policy& policy, ncast_codec unmeasured);

struct PlanChoice {
  const PlanCandidate* plan = nullptr;  // NULL: the built-in way runs
  const char* reason = nullptr;
};
PlanChoice choose_plan(const CallShape& shape, const Decision& built_in, const Policy& policy);

// A plan for the operation of a call, and why it does not run.
struct Alternative {
  const PlanCandidate* plan;
  double microseconds;  // 0: not measured
  const char* why_not;  // NULL: it is the one that runs
};
std::vector<Alternative> alternatives_of(const CallShape& shape, const Decision& decision, const Policy& policy);

}  // namespace narrowcast::select
