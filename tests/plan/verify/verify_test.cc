#include <span>

#include "plan/verify/expect.h"

namespace narrowcast::plan::verify {
namespace {

using namespace testing;

TEST_CASE("correct plans are proved, whole and with messages split") {
  for (const Plan& plan : correct_plans()) {
    CAPTURE(plan.name);
    check_proved(plan);
  }
}

// A reduction to rank 0 whose step `sum` combines the values of all ranks in chunk 0, and not yet those of rank 2 in
// chunk 1.
Plan partly_summed(bool in_loop, bool all_at_once) {
  Plan plan = empty_plan(Operation::reduce, 3, 2);
  const uint32_t from_1 = add_ring(plan, 1, 0, 2), from_2 = add_ring(plan, 2, 0, 2);
  plan.ranks[0].scratch_chunks = 2;
  add(plan, 1, copy(input(0), {message(from_1)}));
  add(plan, 1, copy(input(1), {message(from_1)}));
  add(plan, 2, copy(input(0), {message(from_2)}));
  add(plan, 2, copy(input(1), {message(from_2)}));
  add(plan, 0, reduce({message(from_1), message(from_2)}, {scratch(0)}));
  if (all_at_once)
    add(plan, 0, reduce({message(from_1), message(from_2)}, {scratch(1)}));
  else
    add(plan, 0, copy(message(from_1), {scratch(1)}));
  const Step sum = reduce({input(0), scratch(0)}, {output(0)}, 2);
  add(plan, 0, in_loop ? loop({sum}) : sum);
  if (!all_at_once) add(plan, 0, reduce({output(1), message(from_2)}, {output(1)}));
  return plan;
}

TEST_CASE("a plan can average if each of its steps completes all of its chunks or none") {
  for (const bool in_loop : {false, true}) {
    check_proved(partly_summed(in_loop, true));
    const Report all = verify(partly_summed(in_loop, true));
    CHECK(all.can_average);
    CHECK(!all.completing.empty());
    check_proved(partly_summed(in_loop, false));
    CHECK(!verify(partly_summed(in_loop, false)).can_average);
  }
}

}  // namespace
}  // namespace narrowcast::plan::verify
