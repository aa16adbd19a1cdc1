// Races refuted, next to plans that differ in one respect and are proved.
#include "plan/verify/expect.h"

namespace narrowcast::plan::verify {
namespace {

using namespace testing;

TEST_CASE("a race is reported with both accesses and the last step that is ordered before") {
  Plan plan = grouped_reduce_scatter(2);
  check_proved(plan);
  step_of(plan, 0, 2, 0).after.pop_back();
  const Finding finding = check_refuted(plan, Property::race, "not ordered after rank 0, group");
  REQUIRE(finding.trace.size() == 3);
  CHECK(mentions(finding, "copy of a message from rank 1 (ring 1) to scratch chunk 1"));
  CHECK(mentions(finding, "known to precede"));
}

TEST_CASE("packets are not overwritten by a peer that is a call ahead") {
  Plan plan = packet_all_reduce(2);
  check_proved(plan);
  plan.scratch_copies = 1;
  check_refuted(plan, Property::race, "of an earlier call, which reads it");
}

TEST_CASE("two copies of the scratch do not protect packets from a peer that is two calls ahead") {
  Plan plan = empty_plan(Operation::broadcast, 2);
  plan.scratch_copies = 2;
  plan.ranks[1].scratch_chunks = 1;
  const uint32_t data = add_memory(plan, 0, 1), received = add_memory(plan, 1, 0);
  add(plan, 0, copy(input(0), {output(0), packets(remote(scratch(0), data))}));
  add(plan, 1, copy(packets(scratch(0)), {output(0)}));
  check_refuted(plan, Property::race, "of an earlier call, which reads it");
  add(plan, 0, relaxed_wait({received}));
  add(plan, 1, relaxed_signal({received}));
  check_proved(plan);
}

TEST_CASE("parts of a message that is split do not race with the sender's later parts") {
  // Rank 1 stores what it receives two chunks behind, or one chunk behind, the chunks that rank 0 sends.
  const auto sending_back = [](uint32_t chunk) {
    Plan plan = empty_plan(Operation::broadcast, 2, 2);
    plan.ranks[0].scratch_chunks = 4;
    const uint32_t ring = add_ring(plan, 0, 1), back = add_memory(plan, 1, 0);
    add(plan, 0, copy(input(0), {output(0), scratch(0)}, 2));
    add(plan, 0, copy(scratch(0), {message(ring)}, 2));
    add(plan, 0, wait({back}));
    add(plan, 1, copy(message(ring), {output(0), remote(scratch(chunk), back)}, 2));
    add(plan, 1, signal({back}));
    return plan;
  };
  check_proved(sending_back(2));
  const Report report = verify(sending_back(1));
  CHECK(report.verdict == Verdict::proved);
  CHECK_FALSE(report.split_ok);
  CHECK(report.split_finding.property == Property::race);
}

TEST_CASE("a peer's input and output are accessed only during its call") {
  Plan plan = memory_all_gather(2);
  check_proved(plan);
  // Without the first two steps, rank 1 can still be before the call.
  for (const int rank : {0, 1}) {
    step_of(plan, rank, 0, 0) = sync();
    step_of(plan, rank, 0, 1) = sync();
  }
  check_refuted(plan, Property::race, "not ordered after the user of rank");
  // Without the last two, the put can come after it.
  plan = memory_all_gather(2);
  for (const int rank : {0, 1}) {
    step_of(plan, rank, 0, 3) = sync();
    step_of(plan, rank, 0, 4) = sync();
  }
  check_refuted(plan, Property::race, "whose call may have completed before");
}

TEST_CASE("a relaxed signal orders reads, but not writes") {
  Plan plan = memory_all_reduce(2);
  for (Rank& rank : plan.ranks) rank.groups[0].steps[2].to.pop_back();  // does not put
  plan.operation = Operation::reduce_scatter;
  plan.chunks = 1;
  for (Rank& rank : plan.ranks) rank.groups[0].steps[2].to = {output(0)};
  for (Rank& rank : plan.ranks) rank.groups[0].steps[3].relaxed = rank.groups[0].steps[4].relaxed = true;
  check_proved(plan);
  plan = memory_all_reduce(2);
  for (Rank& rank : plan.ranks) rank.groups[0].steps[3].relaxed = rank.groups[0].steps[4].relaxed = true;
  check_refuted(plan, Property::race, "whose call may have completed before");
}

TEST_CASE("independent threads need a sync after a wait and before a signal") {
  Plan plan = memory_all_reduce(2, Threads::independent);
  check_proved(plan);
  for (const size_t step : {2u, 4u}) {
    Plan changed = plan;
    changed.ranks[0].groups[0].steps.erase(changed.ranks[0].groups[0].steps.begin() + static_cast<ptrdiff_t>(step));
    CHECK(verify(changed).finding.property == Property::race);
    changed.threads = Threads::synchronized;
    check_proved(changed);
  }
}

TEST_CASE("independent threads see each other's parts only after a sync or at the boundary of a loop") {
  Plan plan = ring_all_gather(2, 2);
  plan.threads = Threads::independent;
  for (Rank& rank : plan.ranks) rank.scratch_chunks = 2;
  add(plan, 0, copy(output(0), {scratch(0)}));
  add(plan, 0, copy(output(1), {scratch(1)}));
  add(plan, 0, sync());
  add(plan, 0, copy(scratch(0), {output(0)}, 2));
  check_proved(plan);
  step_of(plan, 0, 0, 6) = copy(output(3), {scratch(0)});  // the same place, first chunk and count as before
  step_of(plan, 0, 0, 7) = copy(scratch(0), {output(3)});
  check_proved(plan);
  step_of(plan, 0, 0, 7) = copy(scratch(0), {output(0)}, 2);
  CHECK(mentions(check_refuted(plan, Property::race, "reads scratch chunks 0 to 1"), "there is no sync between"));
  step_of(plan, 0, 0, 6) = loop({step_of(plan, 0, 0, 7)});
  plan.ranks[0].groups[0].steps.pop_back();
  check_proved(plan);
}

TEST_CASE("packets order their writer before steps of independent threads with as many chunks") {
  const auto returning = [](bool at_once) {
    Plan plan = empty_plan(Operation::all_gather, 2, 2);
    plan.threads = Threads::independent;
    plan.in_place = InPlace::no;
    plan.ranks[1].scratch_chunks = 2;
    const uint32_t there = add_memory(plan, 0, 1), back = add_memory(plan, 1, 0);
    add(plan, 0, copy(input(0), {output(0)}, 2));
    for (const uint32_t chunk : {0, 1}) {
      add(plan, 0, copy(input(chunk), {packets(remote(scratch(chunk), there))}));
      add(plan, 1, copy(packets(scratch(chunk)), {output(chunk)}));
    }
    const auto put = [&](uint32_t chunk) { return std::vector{output(2 + chunk), remote(output(2 + chunk), back)}; };
    if (at_once) add(plan, 1, copy(input(0), put(0), 2));
    for (uint32_t chunk = 0; chunk < 2 && !at_once; ++chunk) add(plan, 1, copy(input(chunk), put(chunk)));
    for (const Step& step : {sync(), signal({back})}) add(plan, 1, step);
    for (const Step& step : {wait({back}), sync()}) add(plan, 0, step);
    return plan;
  };
  check_proved(returning(false));
  check_refuted(returning(true), Property::race, "not ordered after the user of rank 0");
}

TEST_CASE("a copy engine may read its source until the flush") {
  Plan plan = port_all_to_all(2);
  check_proved(plan);
  std::vector<Step>& steps = plan.ranks[0].groups[0].steps;
  CHECK(steps.back().kind == StepKind::flush);
  steps.pop_back();
  CHECK(mentions(check_refuted(plan, Property::race, "reads input chunk 1 of rank 0"), "copy engine"));
}

TEST_CASE("receiving packets does not order plain values next to them") {
  Plan plan = empty_plan(Operation::broadcast, 2);
  const uint32_t channel = add_memory(plan, 0, 1), back = add_memory(plan, 1, 0), entry = add_memory(plan, 1, 0);
  plan.ranks[1].scratch_chunks = 2;
  add(plan, 0, relaxed_wait({entry}));
  add(plan, 1, relaxed_signal({entry}));
  add(plan, 0, copy(input(0), {output(0), packets(remote(scratch(0), channel))}));
  add(plan, 0, wait({back}));
  add(plan, 1, copy(packets(scratch(0)), {output(0)}));
  add(plan, 1, signal({back}));
  check_proved(plan);
  // A plain value next to them.
  step_of(plan, 0, 0, 1) = copy(input(0), {output(0), remote(scratch(1), channel)});
  plan.ranks[0].groups[0].steps.insert(plan.ranks[0].groups[0].steps.begin() + 2,
                                       copy(input(0), {packets(remote(scratch(0), channel))}));
  step_of(plan, 1, 0, 1) = copy(packets(scratch(0)), {output(0)});
  plan.ranks[1].groups[0].steps.insert(plan.ranks[1].groups[0].steps.begin() + 2, copy(scratch(1), {output(0)}));
  check_refuted(plan, Property::race, "reads scratch chunk 1");
}

TEST_CASE("packets are written at most once in a call") {
  Plan plan = packet_all_reduce(2);
  add(plan, 0, copy(input(0), {packets(remote(scratch(0), 0))}));
  check_refuted(plan, Property::race, "in the same call");
}

TEST_CASE("a wait for one signal of several groups does not order the steps before a particular signal") {
  const auto waiting_for = [](const std::vector<uint32_t>& before, const std::vector<uint32_t>& later) {
    Plan plan = empty_plan(Operation::broadcast, 2, 1, 3);
    const uint32_t there = add_memory(plan, 0, 1), back = add_memory(plan, 1, 0);
    plan.ranks[1].scratch_chunks = 1;
    plan.ranks[0].groups[0].steps = {copy(input(0), {output(0), remote(scratch(0), there)}), signal({there}),
                                     wait({back})};
    plan.ranks[0].groups[1].steps = {after(signal({there}), {{0, 1}})};
    plan.ranks[0].groups[2].steps = {signal({there})};
    plan.ranks[1].groups[0].steps = {wait(before), copy(scratch(0), {output(0)}), wait(later), signal({back})};
    return plan;
  };
  check_proved(waiting_for({0, 0}, {0}));
  check_refuted(waiting_for({0}, {0, 0}), Property::race, "reads scratch chunk 0");
}

TEST_CASE("a wait may end with any signal of a semaphore that several groups wait for") {
  const auto waiting_after = [](uint32_t step) {
    Plan plan = empty_plan(Operation::broadcast, 2, 1, 2);
    const uint32_t there = add_memory(plan, 0, 1), back = add_memory(plan, 1, 0);
    plan.ranks[1].scratch_chunks = 1;
    plan.ranks[0].groups[0].steps = {signal({there}), copy(input(0), {output(0), remote(scratch(0), there)}),
                                     signal({there}), wait({back})};
    plan.ranks[1].groups[0].steps = {sync(), wait({there})};
    plan.ranks[1].groups[1].steps = {after(wait({there}), {{0, step}}), copy(scratch(0), {output(0)}), signal({back})};
    return plan;
  };
  check_proved(waiting_after(1));
  check_refuted(waiting_after(0), Property::race, "reads scratch chunk 0");
}

}  // namespace
}  // namespace narrowcast::plan::verify
