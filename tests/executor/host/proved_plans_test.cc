// Every plan that the verifier proves has the result of its operation on the host backend, whatever it is made of and
// in whatever order its groups advance.
#include <array>
#include <random>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "executor/host/plan_calls.h"
#include "plan/lower/lower.h"
#include "plan/steps.h"
#include "plan/verify/verify.h"
#include "support/plan_mutations.h"
#include "support/plans.h"
#include "support/random_plans.h"
#include "support/sanitized.h"

namespace narrowcast::testing {
namespace {

using namespace plan::verify::testing;
using plan::Plan;
using plan::verify::Verdict;

constexpr uint32_t slower = tests::sanitized ? 8 : 1;

// Short, uneven, and several micro-batches.
const std::vector<size_t> counts = {0, 1, 37, 1021};
constexpr size_t small_scratch = 64 << 10;

bool is_proved(const Plan& plan) {
  Plan lowered;
  REQUIRE(plan::lower::lower(plan, &lowered) == NCAST_OK);
  return plan::verify::verify(lowered).verdict == Verdict::proved;
}

// What plans consist of, so that a test can say that it has met everything.
struct Parts {
  std::array<size_t, std::size(plan::step_rows)> steps = {};
  std::array<size_t, std::size(plan::place_rows)> places = {};
  size_t after = 0, relaxed = 0, packets = 0, encoded = 0, ports = 0, gets = 0, in_place = 0;

  void add(const Plan& plan) {
    in_place += plan.in_place != plan::InPlace::no ? 1 : 0;
    for (const plan::Rank& rank : plan.ranks)
      for (const plan::Group& group : rank.groups)
        for (const plan::Step& step : group.steps) add(plan, step);
  }

  bool has_everything() const {
    for (const size_t count : steps)
      if (count == 0) return false;
    for (const size_t count : places)
      if (count == 0) return false;
    return after != 0 && relaxed != 0 && packets != 0 && encoded != 0 && ports != 0 && gets != 0 && in_place != 0;
  }

 private:
  void add(const Plan& plan, const plan::Step& step) {
    ++steps[static_cast<size_t>(step.kind)];
    after += step.after.size();
    relaxed += step.relaxed ? 1 : 0;
    for (const auto* operands : {&step.from, &step.to}) {
      for (const plan::Operand& operand : *operands) {
        ++places[static_cast<size_t>(operand.place)];
        packets += operand.packets ? 1 : 0;
        encoded += operand.codec != NCAST_CODEC_RAW ? 1 : 0;
        if (operand.place != plan::Place::remote) continue;
        ports += plan.channels[operand.channel].kind == plan::ChannelKind::port ? 1 : 0;
        gets += operands == &step.from ? 1 : 0;
      }
    }
    for (const plan::Step& inner : step.body) add(plan, inner);
  }
};

TEST_CASE("puts, gets, copy engines, packets, switches, barriers and loops have the operation's results") {
  uint32_t index = 0;
  for (const Plan& plan : correct_plans()) {
    check_plan_once(plan, counts, 0, index++);
    const RandomInterleaving interleaving(index);
    check_plan_once(plan, counts, small_scratch, index++);
  }
}

TEST_CASE("a loop waits for the steps that it comes after") {
  Plan plan = empty_plan(plan::Operation::broadcast, 2, 1, 2);
  plan.ranks[1].scratch_chunks = 1;
  plan.ranks[1].barriers = {{0, 1}};
  const uint32_t ring = add_ring(plan, 0, 1);
  add(plan, 0, copy(input(0), {output(0), message(ring)}));
  add(plan, 1, copy(message(ring), {scratch(0)}), 0);
  add(plan, 1, after(loop({copy(scratch(0), {output(0)})}, 16), {{0, 0}}), 1);
  for (const uint32_t group : {0u, 1u}) add(plan, 1, barrier(0), group);  // before the scratch is overwritten
  REQUIRE(is_proved(plan));
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    const RandomInterleaving interleaving(seed);
    check_plan_once(plan, counts, small_scratch, seed);
  }
}

TEST_CASE("ranks that send messages of several chunks to each other at once need a depth of one message") {
  const Plan plan = all_pairs_all_reduce(3, 2);
  REQUIRE(is_proved(plan));
  check_plan_once(plan, counts, 0, 1);
}

TEST_CASE("random plans that are proved have the operation's results in any order of their groups") {
  Parts parts;
  uint32_t proved = 0, total = 0;
  for (uint32_t seed = 1; seed <= 300 / slower; ++seed, ++total) {
    Plan plan = random_plan(seed);
    if (!is_proved(plan)) {
      plan.in_place = plan::InPlace::no;
      if (!is_proved(plan)) continue;
    }
    ++proved;
    parts.add(plan);
    const RandomInterleaving interleaving(seed);
    check_plan_once(plan, counts, small_scratch, seed);
  }
  MESSAGE(proved, " of ", total, " random plans are proved");
  CHECK(proved * 2 > total);
  CHECK(parts.has_everything());
}

TEST_CASE("mutants that are proved have the operation's results in any order of their groups") {
  size_t mutants = 0, proved = 0, index = 0;
  for (const Plan& plan : correct_plans()) {
    if (plan.rank_count() != 3) continue;
    for (const Mutant& mutant : mutants_of(plan)) {
      if (index++ % slower != 0) continue;
      ++mutants;
      if (!is_proved(mutant.plan)) continue;
      ++proved;
      const RandomInterleaving interleaving(static_cast<uint32_t>(index));
      check_plan_once(mutant.plan, counts, small_scratch, static_cast<uint32_t>(index));
    }
  }
  MESSAGE(proved, " of ", mutants, " mutants are proved");
  CHECK(proved != 0);
}

}  // namespace
}  // namespace narrowcast::testing
