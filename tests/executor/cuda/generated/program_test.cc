#include "executor/cuda/generated/program.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "doctest/doctest.h"
#include "executor/cuda/generated/sample_plans.h"
#include "plan/verify/verify.h"

namespace narrowcast::executor::cuda::generated {
namespace {

using plan::Plan;

constexpr uint32_t max_slots = 8;

Program program_of(const Plan& plan, ncast_dtype dtype = NCAST_BFLOAT16, ncast_redop op = NCAST_SUM) {
  Program program;
  REQUIRE_MESSAGE(make_program(plan, dtype, op, max_slots, &program) == NCAST_OK, ncast_last_error());
  return program;
}

const std::vector<Item>& items(const Program& program, int rank, uint32_t group = 0) {
  return program.ranks[static_cast<size_t>(rank)].groups[group].items;
}

TEST_CASE("the plans of these tests are proved") {
  for (const uint32_t ranks : {2u, 4u}) {
    for (const Plan& plan :
         {test::all_gather_plan(ranks, NCAST_CODEC_WINDOW), test::all_reduce_plan(ranks, NCAST_CODEC_WINDOW),
          test::all_reduce_one_shot_plan(ranks, NCAST_CODEC_RAW), test::ring_all_reduce_plan(ranks, NCAST_CODEC_RAW),
          test::put_all_gather_plan(ranks), test::packets_all_reduce_plan(ranks, NCAST_CODEC_RAW),
          test::packets_all_reduce_plan(ranks, NCAST_CODEC_WINDOW), test::packets_relay_plan(NCAST_CODEC_WINDOW),
          test::two_group_plan(ranks, NCAST_CODEC_RAW, true), test::two_group_plan(ranks, NCAST_CODEC_RAW, false)}) {
      const plan::verify::Report report = plan::verify::verify(plan);
      CHECK_MESSAGE(report.verdict == plan::verify::Verdict::proved, plan.name << ": " << report.finding.message);
    }
  }
}

TEST_CASE("the stage of a step is the number of messages that it depends on") {
  const Program program = program_of(test::all_reduce_plan(4, NCAST_CODEC_WINDOW));
  CHECK(program.stages == 3);
  for (const Item& item : items(program, 2))
    CHECK(item.stage == (item.kind == Item::Kind::reduce ? 1 : item.from[0].kind == Place::Kind::message ? 2 : 0));
  CHECK(program_of(test::ring_all_reduce_plan(4, NCAST_CODEC_RAW)).stages == 7);
}

TEST_CASE("messages of a ring are received a constant number of stages after they are sent") {
  for (const uint32_t ranks : {2u, 3u, 8u}) {
    const Program program = program_of(test::all_reduce_plan(ranks, NCAST_CODEC_RAW));
    CHECK(program.rings == 1);
    for (const Message& message : program.messages) CHECK(message.received_in - message.sent_in == 1);
  }
}

TEST_CASE("a program completes with the slots that it asks for and not with fewer") {
  for (const uint32_t ranks : {2u, 4u, 8u}) {
    const Program program = program_of(test::all_reduce_plan(ranks, NCAST_CODEC_RAW));
    CHECK(program.min_slots == 4);
    CHECK(completes(program, 4));
    CHECK_FALSE(completes(program, 2));
  }
}

TEST_CASE("a long ring gets the rings that its messages in flight need") {
  for (const uint32_t ranks : {2u, 3u, 4u, 6u, 8u}) {
    const Program program = program_of(test::ring_all_reduce_plan(ranks, NCAST_CODEC_RAW));
    CHECK(program.min_slots <= max_slots);
    CHECK(completes(program, program.min_slots));
  }
}

// Rank 0 sends 20 messages before rank 1 receives any.
TEST_CASE("a deep channel gets several rings") {
  Plan plan = test::all_pairs_plan("deep", plan::Operation::all_to_all, 2, 20);
  plan.chunks = 20;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    std::vector<plan::Step> steps;
    for (uint32_t i = 0; i < 20; ++i)
      steps.push_back(test::copy(test::chunk(test::Buffer::input, (1 - rank) * 20 + i),
                                 {test::message(rank * 2 + 1 - rank, NCAST_CODEC_RAW)}));
    for (uint32_t i = 0; i < 20; ++i) {
      steps.push_back(test::copy(test::chunk(test::Buffer::input, rank * 20 + i),
                                 {test::chunk(test::Buffer::output, rank * 20 + i)}));
      steps.push_back(test::copy(test::message((1 - rank) * 2 + rank, NCAST_CODEC_RAW),
                                 {test::chunk(test::Buffer::output, (1 - rank) * 20 + i)}));
    }
    plan.ranks[rank].groups = {{steps}};
  }
  const Program program = program_of(plan);
  CHECK(program.rings > 1);
  CHECK(completes(program, program.min_slots));
}

TEST_CASE("only reductions of the values of all ranks finish") {
  const Program ring = program_of(test::ring_all_reduce_plan(4, NCAST_CODEC_RAW), NCAST_FLOAT32, NCAST_AVG);
  for (int rank = 0; rank < 4; ++rank)
    CHECK(std::ranges::count_if(items(ring, rank), [](const Item& item) { return item.finishes; }) == 1);
  const Program two_shot = program_of(test::all_reduce_plan(4, NCAST_CODEC_RAW), NCAST_FLOAT32, NCAST_AVG);
  for (int rank = 0; rank < 4; ++rank)
    CHECK(std::ranges::count_if(items(two_shot, rank), [](const Item& item) { return item.finishes; }) == 1);
}

TEST_CASE("the values that a rank sends are counted by their chunks") {
  const Program program = program_of(test::all_reduce_plan(4, NCAST_CODEC_RAW));
  // Three chunks of other ranks, and its own result three times.
  std::vector<uint32_t> sent = program.ranks[1].sent_chunks;
  std::ranges::sort(sent);
  CHECK(sent == std::vector<uint32_t>{0, 1, 1, 1, 2, 3});
  // One put, one message and one get.
  CHECK(program_of(test::packets_relay_plan(NCAST_CODEC_WINDOW)).ranks[2].sent_chunks ==
        std::vector<uint32_t>{0, 0, 0});
}

TEST_CASE("a step that reads what its group has stored waits for the store") {
  Plan plan = test::all_pairs_plan("twice", plan::Operation::all_reduce, 2, 1);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    plan.ranks[rank].scratch_chunks = 1;
    plan.ranks[rank].groups = {
        {{test::copy(test::chunk(test::Buffer::input, 0), {test::message(rank * 2 + 1 - rank, NCAST_CODEC_RAW)}),
          test::copy(test::message((1 - rank) * 2 + rank, NCAST_CODEC_RAW), {test::chunk(test::Buffer::scratch, 0)}),
          test::reduce({test::chunk(test::Buffer::input, 0), test::chunk(test::Buffer::scratch, 0)},
                       {test::chunk(test::Buffer::output, 0)})}}};
  }
  const Program program = program_of(plan);
  CHECK_FALSE(items(program, 0)[0].settles);
  CHECK_FALSE(items(program, 0)[1].settles);
  CHECK(items(program, 0)[2].settles);
}

TEST_CASE("dependences and barriers become points of groups") {
  for (const bool by_barrier : {false, true}) {
    const Program program = program_of(test::two_group_plan(2, NCAST_CODEC_RAW, by_barrier));
    CHECK(program.ranks[0].points == (by_barrier ? 2 : 1));
    const auto count = [&](uint32_t group, Item::Kind kind) {
      return std::ranges::count(items(program, 0, group), kind, &Item::kind);
    };
    CHECK(count(0, Item::Kind::publish) == 1);
    CHECK(count(1, Item::Kind::await) == 1);
    CHECK(count(0, Item::Kind::await) == (by_barrier ? 1 : 0));
  }
}

TEST_CASE("a step of several chunks becomes items of one chunk") {
  Plan plan = test::all_gather_plan(2, NCAST_CODEC_RAW);
  plan.chunks = 3;
  for (plan::Rank& rank : plan.ranks)
    for (plan::Group& group : rank.groups)
      for (plan::Step& step : group.steps) {
        step.count = 3;
        for (plan::Operand& operand : step.to)
          if (operand.place == plan::Place::local) operand.chunk *= 3;
      }
  const Program program = program_of(plan);
  CHECK(items(program, 0).size() == 6);
  CHECK(program.messages.size() == 6);
  CHECK(items(program, 1, 1)[2].to[0].chunk == 2);
}

TEST_CASE("what switches do is done by loads and stores on all ranks") {
  Plan plan = test::all_pairs_plan("switch", plan::Operation::all_reduce, 3, 1);
  plan.channels = {{plan::ChannelKind::multicast, 0, 0, 0, false, 0, {0, 1, 2}}};
  for (plan::Rank& rank : plan.ranks) {
    plan::Operand from{plan::Place::everywhere, plan::Buffer::input, 0}, to = from;
    to.buffer = plan::Buffer::output;
    rank.groups = {{{test::copy(from, {to})}}};
  }
  const Program program = program_of(plan);
  const Item& item = items(program, 1)[0];
  CHECK(item.kind == Item::Kind::reduce);
  CHECK(item.from.size() == 3);
  CHECK(item.from[1].kind == Place::Kind::local);
  CHECK(item.to[2].kind == Place::Kind::remote);
  CHECK(program.accesses_peer_buffers);
  CHECK(program.ranks[1].sent_chunks == std::vector<uint32_t>{0, 0, 0, 0});  // two gets and two stores
}

// Packets that both ranks write and read in loops.
Plan packets_in_loops(uint64_t unit_bytes) {
  Plan plan = test::packets_all_reduce_plan(2, NCAST_CODEC_WINDOW);
  for (plan::Rank& rank : plan.ranks) {
    plan::Step loop;
    loop.kind = plan::StepKind::loop;
    loop.unit_bytes = unit_bytes;
    loop.body = std::move(rank.groups[0].steps);
    rank.groups[0].steps = {loop};
  }
  return plan;
}

TEST_CASE("packets in loops contain the payloads of the host executor's frames, or the plan is refused") {
  const auto is_encoded = [](uint64_t unit_bytes, ncast_dtype dtype) {
    const Program program = program_of(packets_in_loops(unit_bytes), dtype);
    return items(program, 0)[0].to[0].coded && items(program, 1)[1].from[0].coded;
  };
  CHECK(is_encoded(4096, NCAST_FLOAT32));
  CHECK(is_encoded(12288, NCAST_FLOAT32));
  CHECK(is_encoded(8192, NCAST_FLOAT64));
  CHECK_FALSE(is_encoded(2048, NCAST_FLOAT32));  // no frame has a whole block
  CHECK_FALSE(is_encoded(4096, NCAST_FLOAT64));
  CHECK_FALSE(is_encoded(8200, NCAST_FLOAT32));  // frames would not begin at multiples of 16 bytes: there are none
  CHECK_FALSE(is_encoded(4096, NCAST_INT32));
  for (const auto& [unit_bytes, dtype] : {std::pair{6144, NCAST_FLOAT32}, {12288, NCAST_FLOAT64}}) {
    Program program;
    CHECK(make_program(packets_in_loops(static_cast<uint64_t>(unit_bytes)), dtype, NCAST_SUM, max_slots, &program) ==
          NCAST_UNSUPPORTED);
    CHECK(std::string(ncast_last_error()).find(std::to_string(unit_bytes) + " bytes") != std::string::npos);
  }
}

TEST_CASE("failures to receive packets are attributed to the rank that writes them") {
  const Program program = program_of(test::packets_relay_plan(NCAST_CODEC_RAW), NCAST_FLOAT32);
  CHECK(items(program, 1)[1].from[0].writer == 0);  // in the own scratch
  CHECK(items(program, 1)[3].from[0].writer == 0);  // in that of rank 0
  CHECK(items(program, 1)[3].from[0].rank == 0);
}

TEST_CASE("a plan asks for packets if the messages of all its rings are packets") {
  Plan plan = test::all_reduce_plan(3, NCAST_CODEC_RAW);
  CHECK(!program_of(plan).asks_for_packets);
  for (plan::Channel& channel : plan.channels) channel.packets = true;
  CHECK(program_of(plan).asks_for_packets);
  plan.channels[1].packets = false;  // from rank 0 to rank 1
  CHECK(!program_of(plan).asks_for_packets);
  CHECK(!program_of(test::put_all_gather_plan(2)).asks_for_packets);
}

TEST_CASE("copies of scratch have packet flags of their own") {
  PlanLayout layout = {};
  layout.packet_chunks = 3;
  layout.packet_blocks = 5;
  layout.scratch_copies = 2;
  layout.scratch_bytes = 100;
  std::set<uint64_t> flags;
  for (const uint32_t copy : {0u, 1u})
    for (uint32_t chunk = 0; chunk < 3; ++chunk)
      for (uint32_t block = 0; block < 5; ++block) flags.insert(layout.packet_flag(copy, chunk, block));
  CHECK(flags.size() == 30);
  CHECK(layout.scratch(0) >= *flags.rbegin() + sizeof(PacketFlag));
  CHECK(layout.shared_bytes() == layout.scratch(1) + 100);
}

TEST_CASE("plans that cannot complete or become a kernel are refused with the reason") {
  Program program;
  Plan plan = test::all_gather_plan(2, NCAST_CODEC_RAW);
  plan.ranks[0].groups[0].steps.pop_back();
  plan.ranks[0].groups[0].steps[0].to = {test::chunk(test::Buffer::output, 0)};
  CHECK(make_program(plan, NCAST_FLOAT32, NCAST_SUM, max_slots, &program) == NCAST_INVALID_ARGUMENT);
  CHECK(std::string(ncast_last_error()).find("receives 1 messages on channel 1 and sends none") != std::string::npos);

  plan = test::all_gather_plan(2, NCAST_CODEC_RAW);
  for (plan::Rank& rank : plan.ranks) {  // everybody waits
    std::swap(rank.groups[0], rank.groups[1]);
    rank.groups[0].steps.insert(rank.groups[0].steps.end(), rank.groups[1].steps.begin(), rank.groups[1].steps.end());
    rank.groups.pop_back();
  }
  CHECK(make_program(plan, NCAST_FLOAT32, NCAST_SUM, max_slots, &program) == NCAST_INVALID_ARGUMENT);
  CHECK(std::string(ncast_last_error()).find("does not complete") != std::string::npos);

  plan = test::all_gather_plan(9, NCAST_CODEC_RAW);
  CHECK(make_program(plan, NCAST_FLOAT32, NCAST_SUM, max_slots, &program) == NCAST_UNSUPPORTED);
}

}  // namespace
}  // namespace narrowcast::executor::cuda::generated
