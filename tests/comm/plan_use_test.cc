// What the plans of users say about the calls that they can run.
#include "comm/plan_use.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "narrowcast/plan.h"
#include "plan/handle.h"
#include "support/codec_table.h"
#include "support/last_error.h"
#include "support/plans.h"

namespace narrowcast::testing {
namespace {

using plan::verify::testing::ring_all_gather;

// A ring all-gather of two ranks, each of which sends with a codec of its own.
ncast_plan plan_with(ncast_codec first, ncast_codec second) {
  ncast_plan made(ring_all_gather(2));
  for (plan::Rank& rank : made.plan.ranks)
    for (plan::Step& step : rank.groups[0].steps)
      for (std::vector<plan::Operand>* const operands : {&step.from, &step.to})
        for (plan::Operand& operand : *operands)
          if (operand.place == plan::Place::message) operand.codec = operand.channel == 0 ? first : second;
  return made;
}

TEST_CASE("a plan with one codec that is not exact runs only calls that allow this codec") {
  ncast_codec inexact = NCAST_CODEC_RAW;
  for (const tests::CodecInfo& info : tests::all_codecs())
    if (info.exact == 0) inexact = info.codec;
  REQUIRE(inexact != NCAST_CODEC_RAW);
  const ncast_codec raw = NCAST_CODEC_RAW, exact = NCAST_CODEC_WINDOW;
  struct {
    ncast_codec first, second, codec;
  } const cases[] = {{raw, raw, raw},           {raw, exact, exact},         {exact, raw, exact},
                     {raw, inexact, inexact},   {inexact, raw, inexact},     {exact, inexact, inexact},
                     {inexact, exact, inexact}, {inexact, inexact, inexact}, {exact, exact, exact}};
  for (const auto& [first, second, codec] : cases)
    CHECK(comm::candidate_of(plan_with(first, second), NCAST_FLOAT32, NCAST_SUM).codec == codec);
}

TEST_CASE("the codec of a plan includes the messages of its loops") {
  ncast_plan plan = plan_with(NCAST_CODEC_WINDOW, NCAST_CODEC_WINDOW);
  for (plan::Rank& rank : plan.plan.ranks)
    rank.groups[0].steps = {plan::verify::testing::loop(std::move(rank.groups[0].steps))};
  CHECK(comm::candidate_of(plan, NCAST_FLOAT32, NCAST_SUM).codec == NCAST_CODEC_WINDOW);
}

TEST_CASE("a plan has the results of the operation if it combines all ranks in their order and rounds once") {
  const auto has_same_results = [](const plan::Plan& content) {
    return comm::candidate_of(ncast_plan(content), NCAST_FLOAT32, NCAST_SUM).has_same_results;
  };
  CHECK(has_same_results(ring_all_gather(3)));
  CHECK(has_same_results(plan::verify::testing::all_pairs_all_reduce(3)));
  CHECK_FALSE(has_same_results(plan::verify::testing::ring_all_reduce(3)));
  // Rounds twice, in order.
  CHECK_FALSE(has_same_results(plan::verify::testing::recursive_doubling_all_reduce(4)));
  // Rounds once, in another order.
  plan::Plan reversed = plan::verify::testing::all_pairs_all_reduce(3);
  for (plan::Rank& rank : reversed.ranks) std::ranges::reverse(rank.groups[0].steps[1].from);
  CHECK_FALSE(has_same_results(reversed));
}

TEST_CASE("a plan that does not work in place is limited to such calls if the operation has others") {
  const auto placement = [](plan::Plan content, plan::InPlace in_place) {
    content.in_place = in_place;
    return comm::candidate_of(ncast_plan(content), NCAST_FLOAT32, NCAST_SUM).placement;
  };
  CHECK(placement(ring_all_gather(2), plan::InPlace::no) == select::Placement::separate);
  CHECK(placement(ring_all_gather(2), plan::InPlace::yes) == select::Placement::in_place);
  CHECK_FALSE(placement(ring_all_gather(2), plan::InPlace::either));
  CHECK_FALSE(placement(plan::verify::testing::port_all_to_all(2), plan::InPlace::no));
}

TEST_CASE("calls on GPUs run only plans that leave inputs and outputs to their rank") {
  using namespace plan::verify::testing;
  for (const plan::Plan& plan : {ring_all_gather(2), packet_all_reduce(2), pipelined_all_gather(2)}) {
    CAPTURE(plan.name);
    CHECK(comm::why_not_for_calls(plan, NCAST_BACKEND_CUDA) == nullptr);
  }
  for (const plan::Plan& plan :
       {memory_all_gather(2), memory_all_reduce(2), port_all_to_all(2), switch_all_reduce(2)}) {
    CAPTURE(plan.name);
    CHECK(comm::why_not_for_calls(plan, NCAST_BACKEND_CUDA) != nullptr);
    CHECK(comm::why_not_for_calls(plan, NCAST_BACKEND_HOST) == nullptr);
  }
}

TEST_CASE("the sizes of a plan and of its use both limit the calls that it runs") {
  ncast_plan plan = plan_with(NCAST_CODEC_RAW, NCAST_CODEC_RAW);
  plan.plan.min_bytes = 200;  // of the larger buffer: two pieces
  plan.plan.max_bytes = 800;
  const auto limits = [&](uint64_t min_bytes, uint64_t max_bytes) {
    const ncast_plan_use use = {sizeof use, 0, min_bytes, max_bytes};
    select::PlanCandidate candidate = comm::candidate_of(plan, NCAST_FLOAT32, NCAST_SUM);
    CHECK(comm::apply_use(&use, &candidate) == NCAST_OK);
    return std::pair(candidate.min_bytes, candidate.max_bytes);
  };
  CHECK(limits(0, 0) == std::pair<uint64_t, uint64_t>(100, 400));
  CHECK(limits(50, 500) == std::pair<uint64_t, uint64_t>(100, 400));
  CHECK(limits(150, 300) == std::pair<uint64_t, uint64_t>(150, 300));
  plan.plan.max_bytes = 0;
  CHECK(limits(0, 0).second == UINT64_MAX);
  CHECK(limits(0, 500).second == 500);
  const ncast_plan_use reversed = {sizeof reversed, 0, 2, 1};
  select::PlanCandidate candidate;
  CHECK(comm::apply_use(&reversed, &candidate) == NCAST_INVALID_ARGUMENT);
  CHECK(error_contains("use->max_bytes is less than min_bytes"));
}

}  // namespace
}  // namespace narrowcast::testing
