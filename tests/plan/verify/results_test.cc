// Results, rounding and limits: what reports say.
#include <span>
#include <utility>
#include <vector>

#include "narrowcast/codec.h"
#include "plan/verify/expect.h"

namespace narrowcast::plan::verify {
namespace {

using namespace testing;

TEST_CASE("a wrong result is reported with what is missing, added twice or misplaced") {
  Plan changed = memory_all_reduce(3);
  std::vector<Step>& steps = changed.ranks[1].groups[0].steps;
  std::ranges::find(steps, StepKind::reduce, &Step::kind)->from.pop_back();
  check_refuted(changed, Property::result, "output chunk 1 lacks input chunk 1 of rank 2");

  changed = ring_all_reduce(3);
  std::swap(step_of(changed, 0, 0, 1).from[1].chunk, step_of(changed, 0, 0, 0).from[0].chunk);
  const Finding misplaced = check_refuted(changed, Property::result, "output chunk");
  CHECK(misplaced.where.rank >= 0);
  CHECK(!misplaced.trace.empty());

  changed = recursive_doubling_all_reduce(4);
  // Rank 0 adds its own input again.
  const auto distance_two =
      std::find_if(changed.ranks[0].groups[0].steps.begin() + 2, changed.ranks[0].groups[0].steps.end(),
                   [](const Step& step) { return step.kind == StepKind::reduce; });
  distance_two->from.push_back(input(0));
  changed.in_place = InPlace::no;
  const Finding twice =
      check_refuted(changed, Property::result, "contains input chunk 0 of rank 0 twice: rank 0, group 0");
  CHECK(twice.trace.size() >= 2);

  changed = all_pairs_all_gather(2);
  step_of(changed, 0, 0, 0).to.erase(step_of(changed, 0, 0, 0).to.begin());
  changed.in_place = InPlace::yes;
  check_proved(changed);  // the input is there already
  changed.in_place = InPlace::either;
  check_refuted(changed, Property::result, "output chunk 0 is not written");
}

// Ranks 0 and 1 send their sum to rank 2, which adds its own values.
Plan sum_of_sums() {
  Plan plan = empty_plan(Operation::reduce, 3);
  plan.root = 2;
  plan.ranks[1].scratch_chunks = 1;
  const uint32_t first = add_ring(plan, 0, 1), second = add_ring(plan, 1, 2);
  const auto partial = [](Operand operand) {
    operand.partial = true;
    return operand;
  };
  add(plan, 0, copy(input(0), {message(first)}));
  add(plan, 1, reduce({message(first), input(0)}, {partial(scratch(0))}));
  add(plan, 1, copy(partial(scratch(0)), {partial(message(second))}));
  add(plan, 2, reduce({partial(message(second)), input(0)}, {output(0)}));
  return plan;
}

TEST_CASE("partial sums are rounded once, where they become values") {
  Plan plan = sum_of_sums();
  check_proved(plan);
  const Report report = verify(plan);
  CHECK(report.roundings == 1);
  CHECK(report.rank_order);
  Plan changed = plan;
  step_of(changed, 1, 0, 1).from[0].partial = false;
  check_refuted(changed, Property::structure, "a copy cannot convert between partial sums and values");
  step_of(changed, 1, 0, 1).to[0].partial = false;
  check_refuted(changed, Property::structure, "only one end says that it contains partial sums");
  step_of(changed, 2, 0, 0).from[0].partial = false;
  check_refuted(changed, Property::structure, "reads scratch chunk 0, which contains partial sums, as values");
  step_of(changed, 1, 0, 0).to[0].partial = false;
  CHECK(verify(changed).roundings == 2);
  step_of(changed, 1, 0, 1).from[0].partial = step_of(changed, 1, 0, 1).to[0].partial = true;
  step_of(changed, 2, 0, 0).from[0].partial = true;
  check_refuted(changed, Property::structure, "reads scratch chunk 0 as partial sums, but it contains values");

  changed = plan;
  step_of(changed, 2, 0, 0).to[0].partial = true;
  check_refuted(changed, Property::structure, "only possible in messages and in scratch of the rank itself");
  changed = plan;
  step_of(changed, 2, 0, 0).from[1].partial = true;
  check_refuted(changed, Property::structure, "only possible in messages and in scratch of the rank itself");
  changed = plan;
  changed.ranks[1].scratch_chunks = 2;
  step_of(changed, 1, 0, 0).to.push_back(scratch(1));
  check_refuted(changed, Property::structure, "some of the destinations are of partial sums, and others of values");
}

TEST_CASE("in place and out of place are both verified") {
  // Overwrites its input while a peer still reads it, in place only.
  Plan plan = memory_all_reduce(2);
  check_proved(plan);
  plan.in_place = InPlace::either;
  check_proved(plan);  // each rank reads and writes only its own chunk everywhere
  Plan pull = empty_plan(Operation::all_reduce, 2);
  const uint32_t there = add_memory(pull, 0, 1), back = add_memory(pull, 1, 0);
  for (const int rank : {0, 1}) {
    const uint32_t out = rank == 0 ? there : back, in = rank == 0 ? back : there;
    add(pull, rank, signal({out}));
    add(pull, rank, wait({in}));
    add(pull, rank,
        rank == 0 ? reduce({input(0), remote(input(0), out)}, {output(0)})
                  : reduce({remote(input(0), out), input(0)}, {output(0)}));
    add(pull, rank, signal({out}));
    add(pull, rank, wait({in}));
  }
  check_refuted(pull, Property::race, "input chunk 0");
  pull.in_place = InPlace::no;
  check_proved(pull);
}

TEST_CASE("the report counts roundings and says whether results are in rank order and equal everywhere") {
  const Report once = verify(all_pairs_all_reduce(4));
  CHECK(once.roundings == 1);
  CHECK(once.rank_order);
  CHECK(once.same_everywhere);
  const Report ring = verify(ring_all_reduce(4));
  CHECK(ring.roundings == 3);
  CHECK_FALSE(ring.rank_order);
  CHECK(ring.same_everywhere);
  const Report doubling = verify(recursive_doubling_all_reduce(4));
  CHECK(doubling.roundings == 2);
  CHECK(doubling.same_everywhere);
  Plan plan = all_pairs_all_reduce(2);
  std::reverse(step_of(plan, 1, 0, 1).from.begin(), step_of(plan, 1, 0, 1).from.end());
  CHECK_FALSE(verify(plan).rank_order);
  CHECK(verify(plan).same_everywhere);  // the order of two summands does not matter
  CHECK(verify(ring_all_gather(3)).roundings == 0);
}

TEST_CASE("encoded results are the same everywhere if the root keeps what the others receive") {
  Plan plan = broadcast();
  step_of(plan, 0, 0, 0).to[1].codec = step_of(plan, 1, 0, 0).from[0].codec = NCAST_CODEC_INT6;
  CHECK_FALSE(verify(plan).same_everywhere);
  step_of(plan, 0, 0, 0).to[0].codec = NCAST_CODEC_INT6;
  CHECK(verify(plan).same_everywhere);
}

TEST_CASE("a sum counts the roundings and encodings of its parts, and is in rank order if they are") {
  const auto report_of = [&](bool in_order) {
    Plan plan = empty_plan(Operation::reduce, 3);
    plan.ranks[0].scratch_chunks = 1;
    for (const int rank : {1, 2}) add(plan, rank, copy(input(0), {message(add_ring(plan, rank, 0), NCAST_CODEC_INT6)}));
    std::vector<Operand> others = {message(0, NCAST_CODEC_INT6), message(1, NCAST_CODEC_INT6)};
    if (!in_order) std::swap(others[0], others[1]);
    add(plan, 0, reduce(others, {scratch(0)}));
    add(plan, 0, reduce({input(0), scratch(0)}, {output(0)}));
    return verify(plan);
  };
  CHECK(report_of(true).roundings == 2);
  CHECK(report_of(true).inexact_encodings == 1);
  CHECK(report_of(true).rank_order);
  CHECK_FALSE(report_of(false).rank_order);
}

TEST_CASE("a loop deadlocks if its credits are not returned") {
  Plan plan = pipelined_all_gather(2);
  check_proved(plan);
  // The producer waits for a credit in each iteration, of which there are two, and the consumer returns them.
  Plan credits = empty_plan(Operation::broadcast, 2);
  const uint32_t data = add_memory(credits, 0, 1), credit = add_memory(credits, 1, 0, 2);
  credits.ranks[1].scratch_chunks = 1;
  add(credits, 0, copy(input(0), {output(0)}));
  add(credits, 0, loop({wait({credit}), copy(input(0), {remote(scratch(0), data)}), signal({data})}));
  add(credits, 1, loop({wait({data}), copy(scratch(0), {output(0)}), signal({credit})}));
  check_proved(credits);
  // Returned only afterwards, the third iteration does not get one.
  credits.ranks[1].groups[0].steps[0].body.pop_back();
  add(credits, 1, loop({signal({credit})}));
  check_refuted(credits, Property::deadlock, "wait for each other");
  // A ring fills up if its messages are received only afterwards, however deep it is.
  Plan ring = empty_plan(Operation::broadcast, 2);
  const uint32_t messages = add_ring(ring, 0, 1, 4), sent = add_memory(ring, 0, 1);
  add(ring, 0, loop({copy(input(0), {output(0), message(messages)})}));
  add(ring, 0, signal({sent}));
  add(ring, 1, loop({copy(message(messages), {output(0)})}));
  add(ring, 1, wait({sent}));
  check_proved(ring);
  std::swap(step_of(ring, 1, 0, 0), step_of(ring, 1, 0, 1));
  check_refuted(ring, Property::deadlock, "wait for each other");
}

TEST_CASE("a plan for 1024 ranks is proved") {
  Plan plan = tree_broadcast(1024, 3);
  check_proved(plan);
  CHECK(verify(ring_all_gather(128)).verdict == Verdict::proved);
}

TEST_CASE("the report names the origin of a step") {
  Plan plan = grouped_reduce_scatter(2);
  step_of(plan, 0, 2, 0).origin = 77;
  step_of(plan, 0, 2, 0).after.clear();
  const Report report = verify(plan);
  CHECK(report.finding.trace.back().where.origin + report.finding.trace.front().where.origin >= 77);
  CHECK(to_json(report).find("\"origin\": 77") != std::string::npos);
}

}  // namespace
}  // namespace narrowcast::plan::verify
