// The function of plan.h that verifies plans.
#include "plan/handle.h"
#include "plan/verify/verify.h"
#include "status/sized_struct.h"

using namespace narrowcast;

extern "C" ncast_status ncast_plan_verify(const ncast_plan* const* plans, size_t count,
                                          const ncast_plan_verify_options* options, ncast_text** report) {
  constexpr const char* function = "ncast_plan_verify";
  if (plans == nullptr || count == 0) return fail(NCAST_INVALID_ARGUMENT, "%s: there are no plans", function);
  ncast_plan_verify_options given = {};
  if (options != nullptr)
    if (ncast_status status = read_struct("options", *options, sizeof(size_t) + sizeof(uint32_t), &given))
      return status;
  std::vector<const plan::Plan*> list;
  for (size_t i = 0; i < count; ++i) {
    if (ncast_status status = plan::check_plan(function, plans[i])) return status;
    list.push_back(&plans[i]->plan);
    const size_t ranks = list[i]->ranks.size(), expected = list[0]->ranks.size();
    if (ranks != expected)
      return fail(NCAST_INVALID_ARGUMENT, "%s: plan %zu has %zu ranks, but plan 0 has %zu", function, i, ranks,
                  expected);
  }
  return make_text(function, report, [&] {
    return plan::verify::to_json(plan::verify::verify(list, {.depth = given.depth, .split = given.skip_split == 0}));
  });
}
