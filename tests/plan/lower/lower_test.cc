#include "plan/lower/lower.h"

#include <string>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "narrowcast/plan.h"
#include "plan/json/json.h"
#include "plan/limits.h"
#include "plan/verify/verify.h"
#include "support/plans.h"

namespace narrowcast::plan::lower {
namespace {

using namespace verify::testing;

constexpr uint32_t from_peer = 0, to_peer = 1, semaphore = 2, peer_memory = 3;  // channels of plan_of()

// A plan whose rank 0 has these groups, and whose rank 1 has none.
Plan plan_of(std::vector<std::vector<Step>> groups, uint32_t instances = 1) {
  Plan plan = empty_plan(Operation::all_reduce, 2, 4, 0);
  plan.instances = instances;
  add_ring(plan, 1, 0);
  add_ring(plan, 0, 1);
  add_memory(plan, 0, 0);
  add_memory(plan, 0, 1);
  plan.ranks[0].scratch_chunks = 4;
  plan.ranks[0].barriers = {{0, 1}};
  for (std::vector<Step>& steps : groups) plan.ranks[0].groups.push_back({std::move(steps)});
  return plan;
}

// Whether two plans are the same.
void check_same(const Plan& found, const Plan& expected) { CHECK(json::write(found) == json::write(expected)); }

TEST_CASE("a replica has its part of every chunk, and groups, channels and barriers of its own") {
  const Plan plan =
      plan_of({{after(copy(input(3), {message(to_peer)}), {{1, 0}}), barrier(0)}, {signal({semaphore})}}, 2);
  Plan replicated;
  REQUIRE(replicate(plan, &replicated) == NCAST_OK);
  CHECK(replicated.instances == 1);
  CHECK(replicated.chunks == 8);
  CHECK(replicated.channels.size() == 8);
  CHECK(replicated.channels[3].from == 0);  // the second replica of channel 1
  const Rank& rank = replicated.ranks[0];
  CHECK(rank.scratch_chunks == 8);
  CHECK(rank.barriers == std::vector<std::vector<uint32_t>>{{0, 2}, {1, 3}});
  REQUIRE(rank.groups.size() == 4);
  for (uint32_t instance : {0u, 1u}) {
    const std::vector<Step>& steps = rank.groups[instance].steps;
    CHECK(steps[0].from[0].chunk == 6 + instance);
    CHECK(steps[0].to[0].channel == 2 + instance);
    CHECK(steps[0].after[0] == StepId{2 + instance, 0});
    CHECK(steps[1].barrier == instance);
    CHECK(rank.groups[2 + instance].steps[0].channels == std::vector<uint32_t>{4 + instance});
  }
}

TEST_CASE("the C function lowers a plan") {
  ncast_plan* plan = nullptr;
  ncast_plan* lowered = nullptr;
  const std::string text = json::write(plan_of({}, 2));
  REQUIRE(ncast_plan_read(text.data(), text.size(), &plan) == NCAST_OK);
  REQUIRE(ncast_plan_lower(plan, &lowered) == NCAST_OK);
  ncast_plan_info info = {};
  info.struct_bytes = sizeof info;
  REQUIRE(ncast_plan_describe(lowered, &info) == NCAST_OK);
  CHECK(info.chunks == 8);
  CHECK(ncast_plan_lower(plan, nullptr) == NCAST_INVALID_ARGUMENT);
  ncast_plan_destroy(lowered);
  ncast_plan_destroy(plan);
}

TEST_CASE("a replicated step of several chunks becomes steps of one, and others wait for the last one") {
  const Plan plan =
      plan_of({{after(copy(input(1), {message(to_peer)}, 3), {{1, 0}})}, {sync(), after(sync(), {{0, 0}})}}, 2);
  Plan replicated;
  REQUIRE(replicate(plan, &replicated) == NCAST_OK);
  const std::vector<Step>& steps = replicated.ranks[0].groups[1].steps;
  REQUIRE(steps.size() == 3);
  for (uint32_t i = 0; i < 3; ++i) {
    CHECK(steps[i].count == 1);
    CHECK(steps[i].from[0].chunk == 2 * (1 + i) + 1);
    CHECK(steps[i].after == (i == 0 ? std::vector<StepId>{{3, 0}} : std::vector<StepId>{}));
  }
  CHECK(replicated.ranks[0].groups[3].steps[1].after[0] == StepId{1, 2});
}

TEST_CASE("a plan that becomes too large is an error") {
  Plan plan = plan_of({{sync()}, {}});
  Plan replicated;
  plan.instances = max_steps + 1;
  CHECK(replicate(plan, &replicated) == NCAST_UNSUPPORTED);
  CHECK(std::string(ncast_last_error())
            .find("the plan is too large: 4000001 instances, steps in all: 4000001; at most 4000000") !=
        std::string::npos);
  plan.instances = 0;
  CHECK(replicate(plan, &replicated) == NCAST_INVALID_ARGUMENT);
}

TEST_CASE("a forwarding copy becomes a destination of the step that received the values") {
  const Operand encoded = message(to_peer, NCAST_CODEC_WINDOW), at_peer = remote(output(1), peer_memory);
  const Plan fused =
      fuse(plan_of({{copy(message(from_peer), {output(1)}), copy(output(1), {encoded}), copy(output(1), {at_peer})},
                    {after(sync(), {{0, 1}})}}));
  check_same(fused, plan_of({{copy(message(from_peer), {output(1), encoded, at_peer})}, {after(sync(), {{0, 0}})}}));
}

TEST_CASE("reductions into one place become one reduction, unless another group waits for the first sum") {
  const std::vector<Step> two = {reduce({output(1), message(from_peer)}, {output(1)}),
                                 reduce({output(1), scratch(2)}, {output(1), scratch(2)})};
  check_same(fuse(plan_of({two, {}})),
             plan_of({{reduce({output(1), message(from_peer), scratch(2)}, {output(1), scratch(2)})}, {}}));
  const Plan awaited = plan_of({two, {after(sync(), {{0, 0}})}});
  check_same(fuse(awaited), awaited);
}

TEST_CASE("steps are not fused if that could change what they do") {
  const Step receive = copy(message(from_peer), {output(1)});
  const Step sum = reduce({output(1), message(from_peer)}, {output(1)});
  const Step copy_two = copy(scratch(1), {output(0)}, 2);
  const std::pair<Step, Step> pairs[] = {
      // other values, another number of chunks, packets
      {receive, copy(output(2), {message(to_peer)})},
      {receive, copy(output(1), {message(to_peer)}, 2)},
      {receive, copy(packets(output(1)), {message(to_peer)})},
      // input and output can be the same memory
      {receive, copy(output(1), {input(0)})},
      {sum, reduce({output(1), input(1)}, {output(1)})},
      // it waits for another group
      {receive, after(copy(output(1), {message(to_peer)}), {{1, 0}})},
      // memory of this rank, through a channel
      {receive, copy(output(1), {remote(output(1), semaphore)})},
      // two messages on one ring
      {copy(input(1), {output(1), message(to_peer)}), copy(output(1), {message(to_peer)})},
      // the destination overlaps what the first step reads
      {copy_two, copy(output(0), {scratch(0)}, 2)},
      {copy_two, copy(output(0), {scratch(2)}, 2)},
      {reduce({output(1), scratch(2)}, {output(1)}), reduce({output(1), scratch(1)}, {output(1), scratch(2)})},
  };
  for (size_t i = 0; i < std::size(pairs); ++i) {
    CAPTURE(i);
    const Plan plan = plan_of({{pairs[i].first, pairs[i].second}, {sync()}});
    check_same(fuse(plan), plan);
  }
  CHECK(fuse(plan_of({{copy_two, copy(output(0), {scratch(3)}, 2)}})).ranks[0].groups[0].steps.size() ==
        1);  // beside it
}

TEST_CASE("steps are not fused if the fused plan deadlocks") {
  // Every rank passes a value on around a ring of two, through rings of one message.
  Plan plan = empty_plan(Operation::all_gather, 2);
  for (const uint32_t rank : {0u, 1u}) {
    const uint32_t next = add_ring(plan, static_cast<int>(rank), static_cast<int>(1 - rank), 1), before = 1 - next;
    plan.ranks[rank].scratch_chunks = 1;
    plan.ranks[rank].groups[0].steps = {copy(input(0), {message(next)}), copy(message(before), {scratch(0)}),
                                        copy(scratch(0), {message(next)}), copy(message(before), {output(rank)}),
                                        copy(scratch(0), {output(1 - rank)})};
  }
  REQUIRE(verify::verify(plan).verdict == verify::Verdict::proved);
  REQUIRE(verify::verify(fuse(plan)).finding.property == verify::Property::deadlock);
  Plan lowered;
  verify::Report report;
  REQUIRE(lower(plan, &lowered, &report) == NCAST_OK);
  check_same(lowered, plan);
  CHECK(report.verdict == verify::Verdict::proved);
}

TEST_CASE("dangling indices stay dangling") {
  const Plan plan = plan_of({{after(sync(), {{1, 9}, {7, 0}}), barrier(5), signal({99})}, {}}, 3);
  Plan lowered;
  REQUIRE(lower(plan, &lowered) == NCAST_OK);
  const std::vector<Step>& steps = lowered.ranks[0].groups[0].steps;
  CHECK(steps[0].after[0].step > 9);
  CHECK(steps[0].after[1].group >= lowered.ranks[0].groups.size());
  CHECK(steps[1].barrier >= lowered.ranks[0].barriers.size());
  CHECK(steps[2].channels[0] >= lowered.channels.size());
}

}  // namespace
}  // namespace narrowcast::plan::lower
