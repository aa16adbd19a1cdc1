// Each property except races and results refuted, next to a plan that differs in one respect and is proved.
#include "plan/verify/expect.h"

namespace narrowcast::plan::verify {
namespace {

using namespace testing;

TEST_CASE("indices, channels and operands are checked") {
  check_proved(broadcast());
  const auto changed = [](auto change, const std::string& text) {
    Plan plan = broadcast();
    change(plan);
    check_refuted(plan, Property::structure, text);
  };
  changed([](Plan& plan) { plan.ranks.clear(); }, "0 ranks");
  changed([](Plan& plan) { plan.root = 2; }, "root is 2, but the plan has 2 ranks");
  changed([](Plan& plan) { plan.chunks = 0; }, "chunks is 0");
  changed([](Plan& plan) { plan.channels[0].to = 7; }, "rank 7 does not exist");
  changed([](Plan& plan) { plan.channels[0].to = 0; }, "to itself");
  changed([](Plan& plan) { plan.channels[0].depth = 0; }, "depth 0");
  changed([](Plan& plan) { step_of(plan, 1, 0, 0).from[0].channel = 9; }, "channel 9, which does not exist");
  changed([](Plan& plan) { step_of(plan, 0, 0, 0).after = {{3, 0}}; }, "group 3, step 0, which does not exist");
  changed([](Plan& plan) { step_of(plan, 0, 0, 0).after = {{0, 0}}; }, "of the same group");
  changed([](Plan& plan) { step_of(plan, 0, 0, 0).count = 0; }, "count is 0");
  changed([](Plan& plan) { step_of(plan, 0, 0, 0).kind = StepKind::reduce; }, "needs at least two sources");
  changed([](Plan& plan) { add(plan, 0, reduce({input(0), output(0)}, {output(0)})); }, "does not reduce");
  changed([](Plan& plan) { add(plan, 0, signal({0})); }, "which is a ring");
  changed([](Plan& plan) { add(plan, 0, barrier(0)); }, "barrier 0 does not exist");
  changed([](Plan& plan) { add(plan, 0, copy(input(0), {packets(output(0))})); },
          "packets are only possible in scratch");
  changed([](Plan& plan) { step_of(plan, 0, 0, 0).to.push_back(output(0)); }, "twice");
  const auto moved = [&](std::vector<Operand> to, const std::string& text) {
    changed(
        [&](Plan& plan) {
          plan.ranks[0].scratch_chunks = 4;
          add(plan, 0, copy(scratch(1), std::move(to), 2));
        },
        text);
  };
  moved({scratch(2)}, "writes scratch chunks 2 to 3 while it reads scratch chunks 1 to 2");
  moved({scratch(0)}, "writes scratch chunks 0 to 1 while it reads scratch chunks 1 to 2");
  moved({scratch(1), scratch(2)}, "while it reads");
  changed([](Plan& plan) { step_of(plan, 0, 0, 0).to = {output(0), everywhere(output(0), add_switch(plan))}; },
          "twice");
  changed([](Plan& plan) { plan.operation = Operation::send; }, "no plans for this operation");
}

TEST_CASE("steps have the operands and arguments of their kind") {
  const auto rejected = [](Step step, const std::string& text) {
    Plan plan = broadcast();
    const uint32_t channel = add_memory(plan, 0, 1);
    if (!step.channels.empty()) step.channels = {channel};
    add(plan, 0, std::move(step));
    check_refuted(plan, Property::structure, text);
  };
  const auto with = [](Step step, auto change) {
    change(step);
    return step;
  };
  rejected(with(sync(), [](Step& step) { step.from = {input(0)}; }), "a sync cannot have sources");
  rejected(with(copy(input(0), {output(0)}), [](Step& step) { step.from.push_back(input(0)); }),
           "a copy needs one source, not 2");
  rejected(with(sync(), [](Step& step) { step.to = {output(0)}; }), "a sync cannot have destinations");
  rejected(copy(input(0), {}), "a copy needs a destination");
  rejected(signal({}), "a signal needs a channel");
  rejected(with(sync(), [](Step& step) { step.channels = {0}; }), "a sync cannot have channels");
  rejected(with(sync(), [](Step& step) { step.body = {sync()}; }), "a sync cannot have steps");
  rejected(with(sync(), [](Step& step) { step.count = 2; }), "a sync cannot have a count");
}

TEST_CASE("both ends of a ring agree on its messages") {
  Plan plan = broadcast();
  step_of(plan, 1, 0, 0).from[0].codec = step_of(plan, 0, 0, 0).to[1].codec = NCAST_CODEC_WINDOW;
  check_proved(plan);
  step_of(plan, 1, 0, 0).from[0].codec = NCAST_CODEC_RAW;
  check_refuted(plan, Property::structure, "sent as window and received as raw");
  step_of(plan, 1, 0, 0).from[0].codec = step_of(plan, 0, 0, 0).to[1].codec = 99;
  check_refuted(plan, Property::structure, "unknown codec");

  plan = broadcast();
  add(plan, 0, copy(input(0), {message(0)}));
  check_refuted(plan, Property::structure, "2 messages are sent and 1 received");

  plan = empty_plan(Operation::broadcast, 2, 2);
  const uint32_t ring = add_ring(plan, 0, 1);
  add(plan, 0, copy(input(0), {output(0), message(ring)}, 2));
  add(plan, 1, copy(message(ring), {output(0)}, 2));
  check_proved(plan);
  step_of(plan, 1, 0, 0).count = 1;
  check_refuted(plan, Property::structure, "the sender sends 2 chunks, the receiver expects 1 chunk");
}

TEST_CASE("a step of several chunks has at most one message on a ring") {
  const auto sums = [](uint32_t chunks, bool in_loop) {
    Plan plan = empty_plan(Operation::reduce, 2, chunks);
    plan.root = 1;
    const uint32_t ring = add_ring(plan, 0, 1, 4);
    const Step first = copy(input(0), {message(ring)}, chunks);
    const Step sum = reduce({message(ring), input(0)}, {output(0)}, chunks);
    add(plan, 0, in_loop ? loop({first}) : first);
    add(plan, 1, in_loop ? loop({sum}) : sum);
    return plan;
  };
  check_proved(sums(2, false));
  Plan plan = sums(2, false);
  step_of(plan, 1, 0, 0).from.push_back(message(0));
  check_refuted(plan, Property::structure, "two messages on ring 0");
  plan = sums(2, false);
  step_of(plan, 0, 0, 0).to.push_back(message(0));
  check_refuted(plan, Property::structure, "two messages on ring 0");
  // With one chunk the messages are in order, but then there is one too many.
  plan = sums(1, false);
  step_of(plan, 1, 0, 0).from.push_back(message(0));
  check_refuted(plan, Property::structure, "ring 0 from rank 0 to rank 1: 1 message is sent and 2 received");
  plan = sums(2, true);
  plan.ranks[1].groups[0].steps[0].body[0].from.push_back(message(0));
  check_refuted(plan, Property::structure, "sent and");
}

TEST_CASE("a ring has one sending group") {
  Plan plan = empty_plan(Operation::broadcast, 2, 1, 2);
  const uint32_t ring = add_ring(plan, 0, 1);
  add(plan, 0, copy(input(0), {output(0), message(ring)}), 0);
  add(plan, 0, copy(input(0), {message(ring)}), 1);
  add(plan, 1, copy(message(ring), {output(0)}));
  add(plan, 1, copy(message(ring), {output(0)}));
  check_refuted(plan, Property::structure, "a second group sends to ring 0");
}

TEST_CASE("a call sends as many signals as it waits for") {
  Plan plan = memory_all_gather(2);
  check_proved(plan);
  add(plan, 0, signal({0}));
  check_refuted(plan, Property::structure, "from rank 0 to rank 1: 3 signals and 2 waits");
}

TEST_CASE("loops that send and receive, or signal and wait, have the same number of iterations") {
  const auto loops = [](uint64_t unit_bytes, uint32_t count) {
    Plan plan = empty_plan(Operation::broadcast, 2, 2);
    const uint32_t ring = add_ring(plan, 0, 1, 16), channel = add_memory(plan, 0, 1);
    add(plan, 0, copy(input(0), {output(0)}, 2));
    add(plan, 0, loop({copy(input(0), {message(ring)}, 2)}));
    add(plan, 0, loop({signal({channel}), copy(input(0), {output(0)}, 2)}));
    add(plan, 1, loop({copy(message(ring), {output(0)}, 2)}, unit_bytes));
    plan.ranks[1].scratch_chunks = 2;
    add(plan, 1, loop({wait({channel}), copy(output(0), {scratch(0)}, count)}));
    return plan;
  };
  check_proved(loops(4096, 2));
  check_refuted(loops(8192, 2), Property::structure, "it is sent and received by loops that differ in unit_bytes");
  check_refuted(loops(4096, 1), Property::deadlock, "0 signals and 16 waits in a call, in loops of this unit");
}

TEST_CASE("operands lie within their buffers") {
  Plan plan = ring_all_gather(2);
  check_proved(plan);
  step_of(plan, 1, 0, 0).to[0].chunk = 2;
  CHECK(check_refuted(plan, Property::bounds, "output chunk 2, but rank 1's output has 2 chunks").where.rank == 1);
  plan = ring_all_gather(2);
  step_of(plan, 1, 0, 0).to[0].chunk = UINT32_MAX;
  check_refuted(plan, Property::bounds, "has 2 chunks");
}

TEST_CASE("a chunk is written before it is read") {
  Plan plan = ring_all_gather(2);
  plan.ranks[0].scratch_chunks = 1;
  add(plan, 0, copy(output(1), {scratch(0)}));
  check_proved(plan);
  step_of(plan, 0, 0, 2).from[0] = scratch(0);
  step_of(plan, 0, 0, 2).to[0] = output(0);
  check_refuted(plan, Property::undefined, "reads scratch chunk 0, which no step writes");
}

TEST_CASE("scratch does not keep its values between calls") {
  Plan plan = ring_all_gather(2);
  plan.ranks[0].scratch_chunks = 1;
  add(plan, 0, copy(scratch(0), {output(0)}));
  add(plan, 0, copy(output(1), {scratch(0)}));
  const Finding finding = check_refuted(plan, Property::undefined, "before rank 0, group 0, step 3 writes it");
  CHECK(finding.trace.size() == 2);
}

TEST_CASE("the report names the chunk that was not written") {
  Plan plan = empty_plan(Operation::broadcast, 1, 3);
  plan.ranks[0].scratch_chunks = 4;
  add(plan, 0, copy(input(0), {scratch(1)}));
  add(plan, 0, copy(scratch(1), {output(0)}, 3));
  check_refuted(plan, Property::undefined, "reads scratch chunk 2, which no step writes");
}

TEST_CASE("a deadlock is reported with its cycle of waits") {
  Plan plan = empty_plan(Operation::all_gather, 2);
  const uint32_t there = add_ring(plan, 0, 1), back = add_ring(plan, 1, 0);
  for (const int rank : {0, 1}) {
    const uint32_t to = rank == 0 ? there : back, from = rank == 0 ? back : there;
    add(plan, rank, copy(input(0), {output(static_cast<uint32_t>(rank)), message(to)}));
    add(plan, rank, copy(message(from), {output(static_cast<uint32_t>(1 - rank))}));
  }
  check_proved(plan);
  for (const int rank : {0, 1}) std::swap(step_of(plan, rank, 0, 0), step_of(plan, rank, 0, 1));
  const Finding finding = check_refuted(plan, Property::deadlock, "2 groups wait for each other");
  REQUIRE(finding.trace.size() == 2);
  CHECK(finding.trace[0].where.rank == 0);
  CHECK(finding.trace[0].text.find("waits for message 0 on ring 1 from rank 1, group 0") != std::string::npos);
  CHECK(verify(plan).least_depth == 0);
}

TEST_CASE("split messages can need a deeper ring") {
  Plan plan = empty_plan(Operation::all_gather, 2, 4);
  const uint32_t there = add_ring(plan, 0, 1, 2), back = add_ring(plan, 1, 0, 2);
  for (const int rank : {0, 1}) {
    const uint32_t own = 4 * static_cast<uint32_t>(rank), other = 4 - own;
    add(plan, rank, copy(input(0), {output(own), message(rank == 0 ? there : back)}, 4));
    add(plan, rank, copy(message(rank == 0 ? back : there), {output(other)}, 4));
  }
  const Report report = verify(plan);
  CHECK(report.verdict == Verdict::proved);
  CHECK(report.least_depth == 1);
  CHECK_FALSE(report.split_ok);
  CHECK(report.split_finding.property == Property::deadlock);
  CHECK(report.depth_needed_when_split == 4);
  CHECK(verify(plan, {.depth = 4}).split_ok);
}

TEST_CASE("waits for signals or packets that are never sent are deadlocks") {
  Plan plan = memory_all_gather(2);
  step_of(plan, 0, 0, 3) = sync();
  check_refuted(plan, Property::deadlock, "1 signal and 2 waits");
  plan = memory_all_gather(2);
  for (const int rank : {0, 1}) std::swap(step_of(plan, rank, 0, 0), step_of(plan, rank, 0, 1));
  CHECK(mentions(check_refuted(plan, Property::deadlock, "2 groups wait for each other"),
                 "waits for a signal of rank 1 (channel 1) by rank 1, group 0"));
  plan = packet_all_reduce(2);
  check_proved(plan);
  step_of(plan, 0, 0, 0).to[0] = scratch(0);
  check_refuted(plan, Property::deadlock, "waits for packets that no step writes");
}

TEST_CASE("the groups of a barrier visit it equally often") {
  Plan plan = barrier_all_gather(2);
  check_proved(plan);
  add(plan, 0, barrier(0), 0);
  check_refuted(plan, Property::deadlock, "visits barrier 0");
}

TEST_CASE("a step that names a channel twice needs two signals, two messages, or room for two") {
  Plan plan = memory_all_gather(2);
  const uint32_t there = add_memory(plan, 0, 1), back = add_memory(plan, 1, 0);
  add(plan, 0, signal({there}));
  add(plan, 0, signal({there}));
  add(plan, 0, wait({back}));
  add(plan, 1, wait({there, there}));
  add(plan, 1, signal({back}));
  check_proved(plan);
  std::vector<Step>& steps = plan.ranks[0].groups[0].steps;
  std::swap(steps[steps.size() - 2], steps[steps.size() - 1]);
  check_refuted(plan, Property::deadlock, "2 groups wait for each other");

  // Rank 1 adds its values, and those of rank 2, which rank 0 passes on.
  plan = empty_plan(Operation::reduce, 3);
  plan.root = 1;
  const uint32_t ring = add_ring(plan, 0, 1), first = add_ring(plan, 2, 0), reply = add_ring(plan, 1, 2);
  add(plan, 0, copy(input(0), {message(ring)}));
  add(plan, 0, copy(message(first), {message(ring)}));
  add(plan, 1, reduce({message(ring), input(0), message(ring)}, {output(0)}));
  add(plan, 1, copy(input(0), {message(reply)}));
  add(plan, 2, copy(input(0), {message(first)}));
  plan.ranks[2].scratch_chunks = 1;
  add(plan, 2, copy(message(reply), {scratch(0)}));
  check_proved(plan);
  std::swap(step_of(plan, 2, 0, 0), step_of(plan, 2, 0, 1));
  check_refuted(plan, Property::deadlock, "3 groups wait for each other");

  plan = empty_plan(Operation::broadcast, 2);
  add_ring(plan, 0, 1, 2);
  add(plan, 0, copy(input(0), {output(0), message(0), message(0)}));
  for (int i = 0; i < 2; ++i) add(plan, 1, copy(message(0), {output(0)}));
  check_proved(plan);
  CHECK(verify(plan).least_depth == 2);
}

TEST_CASE("a plan is unsupported if it may deadlock depending on which group a signal wakes") {
  // Both groups of rank 1 wait for one signal; the second signal only comes if group 0 got the first.
  Plan plan = empty_plan(Operation::broadcast, 2, 1, 2);
  const uint32_t there = add_memory(plan, 0, 1), back = add_memory(plan, 1, 0), data = add_ring(plan, 0, 1);
  add(plan, 0, copy(input(0), {output(0), message(data)}));
  add(plan, 1, copy(message(data), {output(0)}));
  add(plan, 0, signal({there}));
  add(plan, 0, wait({back}));
  add(plan, 0, signal({there}));
  add(plan, 1, wait({there}), 0);
  add(plan, 1, signal({back}), 0);
  add(plan, 1, wait({there}), 1);
  CHECK(verify(plan).verdict == Verdict::unsupported);
  // Ordered, it is decided.
  step_of(plan, 1, 1, 0).after = {{0, 2}};
  check_proved(plan);
}

TEST_CASE("packets are not read as plain values") {
  Plan plan = packet_all_reduce(2);
  plan.threads = Threads::synchronized;
  add(plan, 0, copy(scratch(1), {output(0)}));
  CHECK(verify(plan).verdict == Verdict::refuted);
}

}  // namespace
}  // namespace narrowcast::plan::verify
