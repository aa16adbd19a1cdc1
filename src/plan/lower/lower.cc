#include "plan/lower/lower.h"

#include <utility>

#include "plan/verify/verify.h"

namespace narrowcast::plan::lower {

ncast_status lower(const Plan& plan, Plan* lowered) {
  Plan replicated;
  if (ncast_status status = replicate(plan, &replicated)) return status;
  Plan fused = fuse(replicated);
  const bool is_proved = verify::verify(fused).verdict == verify::Verdict::proved;
  *lowered = std::move(is_proved ? fused : replicated);
  return NCAST_OK;
}

}  // namespace narrowcast::plan::lower
