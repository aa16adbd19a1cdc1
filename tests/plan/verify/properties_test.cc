// Each property refuted, next to a plan that differs in one respect and is proved.
#include <algorithm>
#include <string>

#include "doctest/doctest.h"
#include "plan/verify/verify.h"
#include "support/plans.h"

namespace narrowcast::plan::verify {
namespace {

using namespace testing;

void check_proved(const Plan& plan) {
  const Report report = verify(plan);
  CHECK_MESSAGE(report.verdict == Verdict::proved, report.finding.message);
  CHECK_MESSAGE(report.split_ok, report.split_finding.message);
}

Finding check_refuted(const Plan& plan, Property property, const std::string& text) {
  const Report report = verify(plan);
  CHECK(report.verdict == Verdict::refuted);
  CHECK(std::string(name_of(report.finding.property)) == name_of(property));
  CHECK_MESSAGE(report.finding.message.find(text) != std::string::npos, report.finding.message);
  return report.finding;
}

bool mentions(const Finding& finding, const std::string& text) {
  return std::any_of(finding.trace.begin(), finding.trace.end(),
                     [&](const TraceStep& step) { return step.text.find(text) != std::string::npos; });
}

Step& step_of(Plan& plan, int rank, size_t group, size_t step) {
  return plan.ranks[static_cast<size_t>(rank)].groups[group].steps[step];
}

// Rank 0 sends its input, the root's, to rank 1.
Plan broadcast() {
  Plan plan = empty_plan(Operation::broadcast, 2);
  const uint32_t ring = add_ring(plan, 0, 1);
  add(plan, 0, copy(input(0), {output(0), message(ring)}));
  add(plan, 1, copy(message(ring), {output(0)}));
  return plan;
}

TEST_CASE("structure: indices, channels and operands are checked") {
  check_proved(broadcast());
  const auto changed = [](auto change, const std::string& text) {
    Plan plan = broadcast();
    change(plan);
    check_refuted(plan, Property::structure, text);
  };
  changed([](Plan& plan) { plan.ranks.clear(); }, "0 ranks");
  changed([](Plan& plan) { plan.root = 2; }, "root 2");
  changed([](Plan& plan) { plan.chunks = 0; }, "no chunks");
  changed([](Plan& plan) { plan.chunks = UINT32_MAX; }, "chunks");
  changed([](Plan& plan) { plan.channels[0].to = 7; }, "rank 7 does not exist");
  changed([](Plan& plan) { plan.channels[0].to = 0; }, "to itself");
  changed([](Plan& plan) { plan.channels[0].depth = 0; }, "depth 0");
  changed([](Plan& plan) { step_of(plan, 1, 0, 0).from[0].channel = 9; }, "channel 9, which does not exist");
  changed([](Plan& plan) { step_of(plan, 0, 0, 0).after = {{3, 0}}; }, "group 3, step 0, which does not exist");
  changed([](Plan& plan) { step_of(plan, 0, 0, 0).after = {{0, 0}}; }, "of the same group");
  changed([](Plan& plan) { step_of(plan, 0, 0, 0).count = 0; }, "0 chunks");
  changed([](Plan& plan) { step_of(plan, 0, 0, 0).kind = StepKind::reduce; }, "two sources");
  changed([](Plan& plan) { add(plan, 0, reduce({input(0), output(0)}, {output(0)})); }, "has no reduction");
  changed([](Plan& plan) { add(plan, 0, signal({0})); }, "which is a ring");
  changed([](Plan& plan) { add(plan, 0, barrier(0)); }, "barrier 0 does not exist");
  changed([](Plan& plan) { add(plan, 0, copy(input(0), {packets(output(0))})); },
          "packets are only possible in scratch");
  changed([](Plan& plan) { step_of(plan, 0, 0, 0).to.push_back(output(0)); }, "twice");
  changed([](Plan& plan) { plan.operation = Operation::send; }, "no plans for this operation");
}

TEST_CASE("structure: what a ring carries matches at both ends") {
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

TEST_CASE("structure: a step of several chunks has no two messages on one ring") {
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
  check_refuted(plan, Property::structure, "1 messages are sent and 2 received");
  plan = sums(2, true);
  plan.ranks[1].groups[0].steps[0].body[0].from.push_back(message(0));
  check_refuted(plan, Property::structure, "sent and");
}

TEST_CASE("structure: a ring has one sending group") {
  Plan plan = empty_plan(Operation::broadcast, 2, 1, 2);
  const uint32_t ring = add_ring(plan, 0, 1);
  add(plan, 0, copy(input(0), {output(0), message(ring)}), 0);
  add(plan, 0, copy(input(0), {message(ring)}), 1);
  add(plan, 1, copy(message(ring), {output(0)}));
  add(plan, 1, copy(message(ring), {output(0)}));
  check_refuted(plan, Property::structure, "a second group sends to ring 0");
}

TEST_CASE("structure: a semaphore that grows with every call is refuted") {
  Plan plan = memory_all_gather(2);
  check_proved(plan);
  add(plan, 0, signal({0}));
  check_refuted(plan, Property::structure, "3 signals and 2 waits");
}

TEST_CASE("bounds: operands lie within their buffers") {
  Plan plan = ring_all_gather(2);
  check_proved(plan);
  step_of(plan, 1, 0, 0).to[0].chunk = 2;
  CHECK(check_refuted(plan, Property::bounds, "output chunk 2, but rank 1's output has 2 chunks").where.rank == 1);
  plan = ring_all_gather(2);
  step_of(plan, 1, 0, 0).to[0].chunk = UINT32_MAX;
  check_refuted(plan, Property::bounds, "has 2 chunks");
}

TEST_CASE("undefined: a chunk that nobody has written is not read") {
  Plan plan = ring_all_gather(2);
  plan.ranks[0].scratch_chunks = 1;
  add(plan, 0, copy(output(1), {scratch(0)}));
  check_proved(plan);
  step_of(plan, 0, 0, 2).from[0] = scratch(0);
  step_of(plan, 0, 0, 2).to[0] = output(0);
  check_refuted(plan, Property::undefined, "reads scratch chunk 0, which no step writes");
}

TEST_CASE("undefined: scratch of an earlier call does not count") {
  Plan plan = ring_all_gather(2);
  plan.ranks[0].scratch_chunks = 1;
  add(plan, 0, copy(scratch(0), {output(0)}));
  add(plan, 0, copy(output(1), {scratch(0)}));
  const Finding finding = check_refuted(plan, Property::undefined, "before rank 0, group 0, step 3 writes it");
  CHECK(finding.trace.size() == 2);
}

TEST_CASE("deadlock: the cycle of waits is shown") {
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

TEST_CASE("deadlock: messages that are split can need more depth") {
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

TEST_CASE("deadlock: a wait without a signal, and packets that nobody writes") {
  Plan plan = memory_all_gather(2);
  step_of(plan, 0, 0, 3) = sync();
  check_refuted(plan, Property::deadlock, "1 signals and 2 waits");
  plan = packet_all_reduce(2);
  check_proved(plan);
  step_of(plan, 0, 0, 0).to[0] = scratch(0);
  check_refuted(plan, Property::deadlock, "waits for packets that no step writes");
}

TEST_CASE("deadlock: barriers are visited equally often") {
  Plan plan = barrier_all_gather(2);
  check_proved(plan);
  add(plan, 0, barrier(0), 0);
  check_refuted(plan, Property::deadlock, "visits barrier 0");
}

TEST_CASE("deadlock: which of several waiting groups goes on can be undecided") {
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

TEST_CASE("race: both accesses are shown, and what is known to precede") {
  Plan plan = grouped_reduce_scatter(2);
  check_proved(plan);
  step_of(plan, 0, 2, 0).after.pop_back();
  const Finding finding = check_refuted(plan, Property::race, "not ordered after rank 0, group");
  REQUIRE(finding.trace.size() == 3);
  CHECK(mentions(finding, "copy of a message on channel 1 to scratch chunk 1"));
  CHECK(mentions(finding, "known to precede"));
}

TEST_CASE("race: a peer can be a call ahead") {
  Plan plan = packet_all_reduce(2);
  check_proved(plan);
  plan.scratch_copies = 1;
  check_refuted(plan, Property::race, "of an earlier call, which reads it");
}

TEST_CASE("race: the user of a peer reads and writes between calls") {
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

TEST_CASE("race: a relaxed signal orders reads, but no writes") {
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

TEST_CASE("race: independent threads need a sync after a wait and before a signal") {
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

TEST_CASE("race: independent threads see other parts only after a sync") {
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
  CHECK(mentions(check_refuted(plan, Property::race, "reads scratch chunks 0 to 1"), "no sync is between"));
}

TEST_CASE("race: a copy engine still reads until the flush") {
  Plan plan = port_all_to_all(2);
  check_proved(plan);
  std::vector<Step>& steps = plan.ranks[0].groups[0].steps;
  CHECK(steps.back().kind == StepKind::flush);
  steps.pop_back();
  CHECK(mentions(check_refuted(plan, Property::race, "reads input chunk 1 of rank 0"), "copy engine"));
}

TEST_CASE("race: packets carry only themselves") {
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

TEST_CASE("race: packets are written once in a call") {
  Plan plan = packet_all_reduce(2);
  add(plan, 0, copy(input(0), {packets(remote(scratch(0), 0))}));
  check_refuted(plan, Property::race, "in the same call");
}

TEST_CASE("undefined: packets are not read as values") {
  Plan plan = packet_all_reduce(2);
  plan.threads = Threads::synchronized;
  add(plan, 0, copy(scratch(1), {output(0)}));
  CHECK(verify(plan).verdict == Verdict::refuted);
}

TEST_CASE("plans that share scratch are ordered too") {
  const Plan packet = packet_all_reduce(2, 2), two_shot = packet_two_shot_all_reduce(2),
             rings = all_pairs_all_gather(2);
  const auto together = [](const Plan& a, const Plan& b) {
    const Plan* const plans[] = {&a, &b};
    return verify(std::span<const Plan* const>(plans));
  };
  CHECK(together(two_shot, rings).verdict == Verdict::proved);
  // Each is correct by itself, but peers can still read one plan's packets when the other one overwrites them.
  CHECK(verify(packet).verdict == Verdict::proved);
  CHECK(verify(two_shot).verdict == Verdict::proved);
  const Report report = together(packet, two_shot);
  CHECK(report.verdict == Verdict::refuted);
  CHECK(report.finding.property == Property::race);
  CHECK(report.finding.message.find("of plan 0") != std::string::npos);
}

TEST_CASE("result: what is missing, double or misplaced is named") {
  Plan plan = all_pairs_all_reduce(3);
  check_proved(plan);
  Plan changed = plan;
  step_of(changed, 1, 0, 1).from[1] = input(0);
  check_proved(changed);
  std::swap(step_of(changed, 1, 0, 1).to[0], changed.ranks[1].groups[0].steps[1].to[0]);

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
  const Finding twice = check_refuted(changed, Property::result, "twice");
  CHECK(twice.trace.size() >= 2);

  changed = all_pairs_all_gather(2);
  step_of(changed, 0, 0, 0).to.erase(step_of(changed, 0, 0, 0).to.begin());
  changed.in_place = InPlace::yes;
  check_proved(changed);  // the input is there already
  changed.in_place = InPlace::either;
  check_refuted(changed, Property::result, "output chunk 0 is not written");
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

TEST_CASE("how results are rounded is reported") {
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

TEST_CASE("loops: credits that are not returned run out") {
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
}

TEST_CASE("plans that are too large are neither proved nor refuted") {
  Plan plan = broadcast();
  plan.ranks[1].scratch_chunks = UINT32_MAX;
  const Report report = verify(plan);
  CHECK(report.verdict == Verdict::unsupported);
  CHECK(report.finding.message.find("chunks of buffers: 4294967") != std::string::npos);
  plan = empty_plan(Operation::broadcast, 2);
  const uint32_t there = add_ring(plan, 0, 1), back = add_ring(plan, 1, 0);
  add(plan, 0, copy(message(back), {message(there)}, UINT32_MAX));
  add(plan, 1, copy(message(there), {message(back)}, UINT32_MAX));
  CHECK(verify(plan).verdict == Verdict::unsupported);
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
