#include "plan/lower/lower.h"

#include <utility>

#include "plan/budget.h"
#include "plan/verify/verify.h"

namespace narrowcast::plan::lower {

ncast_status lower(const Plan& plan, Plan* lowered, verify::Report* report) {
  const Budget budget;  // shared by all passes
  Plan replicated;
  if (ncast_status status = replicate(plan, &replicated)) return status;
  Plan fused;
  const auto fuse_all = [&] {
    fused = fuse(replicated);
    return NCAST_OK;
  };
  if (ncast_status status = within_budget(fuse_all)) return status;
  verify::Report found = verify::verify(fused);
  const bool is_proved = found.verdict == verify::Verdict::proved;
  if (report != nullptr) *report = is_proved ? std::move(found) : verify::verify(replicated);
  *lowered = std::move(is_proved ? fused : replicated);
  return NCAST_OK;
}

}  // namespace narrowcast::plan::lower
