#include "executor/cuda/generated/source.h"

#include <cinttypes>
#include <functional>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "codec/kernel_table.h"
#include "doctest/doctest.h"
#include "executor/cuda/generated/compile.h"
#include "executor/cuda/generated/kernel_sources.h"
#include "executor/cuda/generated/nvrtc.h"
#include "executor/cuda/generated/sample_plans.h"
#include "executor/cuda/generated/shape.h"
#include "executor/cuda/generated/text.h"
#include "narrowcast/codec.h"
#include "support/sanitized.h"

namespace narrowcast::executor::cuda::generated {
namespace {

using plan::Plan;

CompiledPlan generated(const Plan& plan, ncast_dtype dtype = NCAST_BFLOAT16, ncast_redop op = NCAST_SUM,
                       bool by_steps = true) {
  CompiledPlan made;
  REQUIRE_MESSAGE(generate(plan, {dtype, op, 90, 8, by_steps}, &made) == NCAST_OK, ncast_last_error());
  return made;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST_CASE("ranks with the same program share its code") {
  for (const uint32_t ranks : {2u, 4u, 8u}) {
    CHECK(count(generated(test::all_reduce_plan(ranks, NCAST_CODEC_WINDOW)).blocks.text, "bool program_") == 1);
    CHECK(count(generated(test::all_gather_plan(ranks, NCAST_CODEC_RAW)).blocks.text, "bool program_") == 2);
    CHECK(count(generated(test::ring_all_reduce_plan(ranks, NCAST_CODEC_RAW)).blocks.text, "bool program_") == 1);
  }
}

// The first program of a kernel that works by blocks.
std::string program_text(const Plan& plan) {
  const std::string text = generated(plan).blocks.text;
  const size_t begin = text.find("bool program_0(");
  return text.substr(begin, text.find("}  // namespace") - begin);
}

TEST_CASE("the code does not grow with the number of ranks") {
  const auto lines = [](const Plan& plan) { return count(program_text(plan), "\n"); };
  CHECK(lines(test::all_reduce_plan(3, NCAST_CODEC_RAW)) == lines(test::all_reduce_plan(8, NCAST_CODEC_RAW)));
  for (const ncast_codec codec : {NCAST_CODEC_RAW, NCAST_CODEC_WINDOW})
    CHECK(lines(test::ring_all_reduce_plan(4, codec)) == lines(test::ring_all_reduce_plan(8, codec)));
}

TEST_CASE("short programs execute no line that they do not need") {
  CHECK(count(program_text(test::all_reduce_plan(4, NCAST_CODEC_RAW)), "lines_0") == 0);
  CHECK(count(program_text(test::put_all_gather_plan(2)), "lines_0") == 0);
}

TEST_CASE("kernels have no code for what no item does") {
  const std::string puts = generated(test::put_all_gather_plan(2)).blocks.text;
  CHECK(count(puts, "WarpEnds<0, 0>") == 1);  // no messages
  CHECK(count(puts, "loads_messages_ahead = false") == 1);
  const std::string ring = generated(test::ring_all_reduce_plan(4, NCAST_CODEC_RAW)).blocks.text;
  CHECK(count(ring, "loads_chunks_ahead = true, loads_messages_ahead = true") == 1);
}

TEST_CASE("what the items of a long program have in common is once in the code") {
  const std::string text = program_text(test::ring_all_reduce_plan(4, NCAST_CODEC_WINDOW));
  CHECK(count(text, "lines_0 >> ") == 10);  // of 11 lines
  // Messages that are passed on go out before stores, other values after: the shorter of the two is there twice.
  CHECK(count(text, "w.store(") == 2);
  for (const char* once : {"w.start(", "w.load(", "w.receive(", "w.template reduce_with_message<", "w.prefetch_next(",
                           "w.open(", "w.encoded_values(", "w.received_payload(", "w.send_payload("})
    CHECK_MESSAGE(count(text, once) == 1, once);
  CHECK(count(text, "      {\n        w.prefetch_next();\n      }\n") == 1);  // without a condition: in all items
}

TEST_CASE("a message is combined with a chunk without sums in registers") {
  CHECK(count(program_text(test::ring_all_reduce_plan(4, NCAST_CODEC_RAW)), "sums") == 0);
  CHECK(count(program_text(test::all_reduce_plan(2, NCAST_CODEC_WINDOW)), "reduce_with_message<true, false>") == 1);
  CHECK(count(program_text(test::all_reduce_plan(3, NCAST_CODEC_WINDOW)), "w.template reduce<true>(sums") == 1);
}

TEST_CASE("values are encoded once for all destinations") {
  const std::string text = generated(test::all_reduce_plan(4, NCAST_CODEC_WINDOW)).blocks.text;
  CHECK(count(text, "w.encoded_values()") == 2);  // in the loop over peers, and for the result, which goes to all
}

TEST_CASE("a message is passed on as it is if the next ring has its codec") {
  CHECK(count(generated(test::ring_all_reduce_plan(4, NCAST_CODEC_WINDOW)).blocks.text, "w.received_payload()") == 1);
  Plan plan = test::ring_all_reduce_plan(3, NCAST_CODEC_WINDOW);
  for (plan::Rank& rank : plan.ranks) {  // send the results on raw
    std::vector<plan::Step>& steps = rank.groups[0].steps;
    steps[3].to[1].codec = NCAST_CODEC_RAW;
    steps[4].from[0].codec = NCAST_CODEC_RAW;
  }
  const std::string text = generated(plan).blocks.text;
  CHECK(count(text, "w.received_payload()") == 0);
  CHECK(count(text, "w.open()") == 1);
}

TEST_CASE("packets in scratch are encoded once for all ranks, and decoded by the reduction") {
  const std::string text = generated(test::packets_all_reduce_plan(4, NCAST_CODEC_WINDOW)).blocks.text;
  CHECK(count(text, "w.encoded_values()") == 1);
  CHECK(count(text, "w.store_packets(") == 3);
  CHECK(count(text, "reduce<true>") == 1);
  CHECK(count(text, "reduces_packets = true") == 1);
  CHECK(count(text, "w.wait_for_packets(") == 0);
  CHECK(count(text, "w.store_remote(") == 0);
}

TEST_CASE("encoded packets and messages are passed on as they are") {
  const std::string text = generated(test::packets_relay_plan(NCAST_CODEC_WINDOW), NCAST_FLOAT32).blocks.text;
  CHECK(count(text, "w.encoded_values()") == 1);  // of the own input
  CHECK(count(text, "w.received_payload()") == 2);
  CHECK(count(text, "w.send_payload(") == 1);
}

TEST_CASE("a rank waits for packets in its own memory and in that of another rank") {
  CHECK(count(generated(test::packets_relay_plan(NCAST_CODEC_RAW)).blocks.text, "w.wait_for_packets(") == 2);
}

TEST_CASE("types without a codec are sent raw") {
  const CompiledPlan packets = generated(test::packets_all_reduce_plan(2, NCAST_CODEC_WINDOW), NCAST_INT32);
  CHECK(count(packets.blocks.text, "w.store_packets(") == 0);
  const CompiledPlan made = generated(test::all_reduce_plan(2, NCAST_CODEC_WINDOW), NCAST_INT32);
  CHECK(count(made.blocks.text, "w.encoded_values()") == 0);
  CHECK(count(made.blocks.text, "raw::SharedCodec<NCAST_INT32>") == 1);
}

TEST_CASE("a generated kernel names the codec of its plan, with all parameters") {
  ncast_codec codec = NCAST_CODEC_RAW;
  REQUIRE(ncast_codec_parse("int6:group=64", &codec) == NCAST_OK);
  const CompiledPlan made = generated(test::ring_all_reduce_plan(3, codec), NCAST_FLOAT32);
  CHECK(count(made.blocks.text, "#include \"codec/grouped/kernel.cuh\"") == 1);
  CHECK(count(made.blocks.text, "codec::grouped::SharedCodec<NCAST_FLOAT32>") == 1);
  CHECK(count(made.blocks.text, text("coding = 0x%" PRIx64 ";", codec::explicit_parameters(codec))) == 1);
}

TEST_CASE("a plan that encodes a received payload again for a buffer of the rank has no generated kernel") {
  constexpr ncast_codec codec = NCAST_CODEC_INT8;
  plan::Plan plan = test::all_gather_plan(2, codec);
  for (plan::Rank& rank : plan.ranks)
    for (plan::Group& group : rank.groups)
      for (plan::Step& step : group.steps)
        for (plan::Operand& to : step.to) to.codec = codec;
  CompiledPlan made;
  CHECK(generate(plan, {NCAST_FLOAT32, NCAST_SUM, 90, 8, true}, &made) == NCAST_UNSUPPORTED);
  CHECK(std::string(ncast_last_error()).find("encodes the values of a message again") != std::string::npos);
}

TEST_CASE("packets are for raw messages between rings") {
  CHECK_FALSE(generated(test::all_reduce_plan(2, NCAST_CODEC_RAW)).packets.straight.text.empty());
  CHECK(generated(test::all_reduce_plan(2, NCAST_CODEC_WINDOW)).packets.straight.text.empty());
  CHECK(generated(test::put_all_gather_plan(2)).packets.straight.text.empty());
}

TEST_CASE("plans whose steps are those of the operations get instances of their kernels") {
  const auto pieces = [](const Plan& plan) {
    return generated(plan, NCAST_BFLOAT16, NCAST_SUM, false).blocks.pieces.has_value();
  };
  for (const uint32_t ranks : {2u, 3u, 8u}) {
    CHECK(pieces(test::all_gather_plan(ranks, NCAST_CODEC_WINDOW)));
    CHECK(pieces(test::all_reduce_plan(ranks, NCAST_CODEC_RAW)));
    CHECK(pieces(test::all_reduce_one_shot_plan(ranks, NCAST_CODEC_RAW)));
    CHECK(pieces(test::all_reduce_one_shot_plan(ranks, NCAST_CODEC_WINDOW)));
  }
  Plan ordered = test::all_gather_plan(3, NCAST_CODEC_WINDOW);
  for (plan::Rank& rank : ordered.ranks) rank.groups[1].steps[0].after.push_back({0, 0});
  CHECK(pieces(ordered));
  CHECK_FALSE(pieces(test::ring_all_reduce_plan(3, NCAST_CODEC_RAW)));
  CHECK_FALSE(pieces(test::two_group_plan(2, NCAST_CODEC_RAW, true)));
  CHECK_FALSE(pieces(test::put_all_gather_plan(2)));
  Plan plan = test::all_gather_plan(3, NCAST_CODEC_RAW);  // one message is encoded
  const uint32_t channel = plan.ranks[0].groups[0].steps[0].to[0].channel;
  plan.ranks[0].groups[0].steps[0].to[0].codec = NCAST_CODEC_WINDOW;
  for (plan::Step& step : plan.ranks[1].groups[1].steps)
    if (step.from[0].channel == channel) step.from[0].codec = NCAST_CODEC_WINDOW;
  CHECK_FALSE(pieces(plan));
}

TEST_CASE("a piece that all peers of a rank get is sent to them together") {
  const auto masks = [](const Plan& plan) {
    const CompiledPlan made = generated(plan, NCAST_BFLOAT16, NCAST_SUM, false);
    REQUIRE(made.blocks.pieces.has_value());
    std::vector<uint32_t> found;
    for (const RankChunks& rank : made.blocks.pieces->ranks) found.push_back(rank.sent_together());
    return found;
  };
  CHECK(masks(test::all_reduce_one_shot_plan(3, NCAST_CODEC_WINDOW)) == std::vector<uint32_t>{6, 5, 3});
  CHECK(masks(test::all_reduce_one_shot_plan(2, NCAST_CODEC_WINDOW)) == std::vector<uint32_t>{0, 0});
  CHECK(masks(test::all_reduce_plan(3, NCAST_CODEC_WINDOW)) == std::vector<uint32_t>{0, 0, 0});
}

TEST_CASE("generated kernels have as many warps as fit the shared memory of a CTA") {
  for (const Plan& plan : {test::all_reduce_plan(4, NCAST_CODEC_WINDOW), test::ring_all_reduce_plan(8, NCAST_CODEC_RAW),
                           test::all_gather_plan(8, NCAST_CODEC_RAW)}) {
    for (const bool by_steps : {true, false}) {
      uint32_t last = 0;
      for (const uint32_t kib : {64u, 99u, 163u, 227u}) {
        CAPTURE(kib);
        CompiledPlan made;
        const Target target{
            .dtype = NCAST_FLOAT32, .architecture = 90, .by_steps = by_steps, .shared_bytes = kib << 10};
        REQUIRE(generate(plan, target, &made) == NCAST_OK);
        CHECK(made.blocks.shared_bytes <= kib << 10);
        CHECK(made.blocks.warps > last);
        last = made.blocks.warps;
      }
    }
  }
}

TEST_CASE("direct exchanges of which the library has the kernel are not compiled") {
  using codec::KernelKind;
  const auto kernel_of = [](KernelKind kind) {  // a stand-in, if this program contains no kernels
    if (codec::find_kernel(kind, NCAST_CODEC_WINDOW, NCAST_BFLOAT16) == nullptr)
      codec::add_kernel(kind, NCAST_CODEC_WINDOW, NCAST_BFLOAT16, {nullptr, 5, 5, 0, 1000});
    return codec::find_kernel(kind, NCAST_CODEC_WINDOW, NCAST_BFLOAT16);
  };
  const auto check = [](const Plan& plan, const codec::Kernel* kernel) {
    CompiledPlan made;
    REQUIRE_MESSAGE(compile(plan, {NCAST_BFLOAT16, NCAST_SUM, 90}, "", &made) == NCAST_OK, ncast_last_error());
    CHECK(made.built_in == kernel);
    for (const std::string& cubin : made.cubins) CHECK(cubin.empty());
  };
  check(test::all_gather_plan(3, NCAST_CODEC_WINDOW), kernel_of(KernelKind::move));
  check(test::all_reduce_plan(3, NCAST_CODEC_WINDOW), kernel_of(KernelKind::reduce_sum));
  check(test::all_reduce_one_shot_plan(3, NCAST_CODEC_WINDOW), kernel_of(KernelKind::reduce_sum));
}

TEST_CASE("encoded direct exchanges are cut into whole blocks") {
  const auto chunk_bytes = [](const Plan& plan, bool by_steps) {
    return chunk_bytes_of(generated(plan, NCAST_BFLOAT16, NCAST_SUM, by_steps), 1000);
  };
  CHECK(chunk_bytes(test::all_reduce_plan(4, NCAST_CODEC_WINDOW), false) == 4096);
  CHECK(chunk_bytes(test::all_reduce_plan(4, NCAST_CODEC_RAW), false) == 512);
  CHECK(chunk_bytes(test::all_reduce_plan(4, NCAST_CODEC_WINDOW), true) == 512);
}

TEST_CASE("reductions that do not follow the order of the ranks are executed by steps") {
  Plan plan = test::all_reduce_one_shot_plan(3, NCAST_CODEC_RAW);
  for (plan::Rank& rank : plan.ranks)
    for (plan::Step& step : rank.groups[0].steps)
      if (step.kind == plan::StepKind::reduce) std::swap(step.from[1], step.from[2]);
  CHECK_FALSE(generated(plan, NCAST_BFLOAT16, NCAST_SUM, false).blocks.pieces.has_value());
}

TEST_CASE("the numbers of every rank's program by packets fit into the kernel's parameters") {
  for (const uint32_t ranks : {2u, 4u, 8u}) {
    const CompiledPlan made = generated(test::all_reduce_plan(ranks, NCAST_CODEC_RAW));
    for (const PacketKernels& kernels : {made.packets.straight, made.packets.in_phases}) {
      REQUIRE(kernels.tables.size() == ranks);
      for (const std::vector<PacketWord>& table : kernels.tables) {
        CHECK(table.size() <= max_packet_words);
        CHECK(table.size() % made.packets.strands == 0);
      }
    }
  }
}

TEST_CASE("the code of a reduction by packets does not depend on the rank") {
  const std::string text = generated(test::all_reduce_one_shot_plan(4, NCAST_CODEC_RAW)).packets.straight.text;
  CHECK(count(text, "void program_") == 1);
  CHECK(count(text, "reduce_in_rank_order") == 1);
}

TEST_CASE("phases of long programs that differ in numbers only are loops") {
  const auto text = [](uint32_t ranks) {
    return generated(test::ring_all_reduce_plan(ranks, NCAST_CODEC_RAW)).packets.in_phases.text;
  };
  CHECK(count(text(4), "; ++phase)") == 0);
  CHECK(count(text(8), "; ++phase)") == 2);
  CHECK(count(text(8), "w.receive_one(") == 4);  // reduces, has the result, passes it on, stores it
}

TEST_CASE("only short programs by packets keep all values in registers") {
  CHECK_FALSE(generated(test::ring_all_reduce_plan(4, NCAST_CODEC_RAW)).packets.straight.text.empty());
  const CompiledPlan made = generated(test::ring_all_reduce_plan(8, NCAST_CODEC_RAW));
  CHECK(made.packets.straight.text.empty());
  CHECK_FALSE(made.packets.in_phases.text.empty());
}

TEST_CASE("rings that carry data and results, and rings in host memory, use all slots") {
  const auto slots = [](const Plan& plan, bool over_host) {
    const CompiledPlan made = generated(plan);
    return shape_of(made.program, made.blocks, 64, 32, 512, 8, over_host).slots;
  };
  CHECK(slots(test::all_reduce_plan(2, NCAST_CODEC_RAW), false) == 8);
  CHECK(slots(test::all_gather_plan(2, NCAST_CODEC_RAW), false) == 4);
  CHECK(slots(test::all_gather_plan(2, NCAST_CODEC_RAW), true) == 8);
}

TEST_CASE("independent parts of a program by packets run on different warps") {
  CHECK(generated(test::all_reduce_one_shot_plan(4, NCAST_CODEC_RAW)).packets.strands == 1);
  CHECK(generated(test::all_gather_plan(4, NCAST_CODEC_RAW)).packets.strands == 4);
}

TEST_CASE("text of any length is complete") {
  CHECK(text("%d, %s", 7, "b") == "7, b");
  for (const size_t length : {0u, 398u, 399u, 400u, 401u, 5000u}) {
    const std::string one(length, 'a');
    CHECK(text("%s", one.c_str()) == one);
  }
}

TEST_CASE("the sources that kernels include are embedded") {
  const CompiledPlan made = generated(test::all_reduce_plan(2, NCAST_CODEC_WINDOW));
  const std::string source = with_included_sources(made.blocks.text);
  CHECK(count(source, "#include") == 0);
  CHECK(count(source, "class PlanWarp") == 1);
  CHECK(count(source, "enum __nv_fp8_interpretation_t") == 1);
}

TEST_CASE("generated kernels compile for every step, type and reduction") {
  if (load_nvrtc() != NCAST_OK) {
    MESSAGE("skipped: " << ncast_last_error());
    return;
  }
  bool has_compiled = false;
  const auto compiles = [&](const Plan& plan, ncast_dtype dtype, ncast_redop op, bool by_steps = true,
                            int architecture = 90) {
    const CompiledPlan made = generated(plan, dtype, op, by_steps);
    for (const std::string& text : {made.blocks.text, made.packets.straight.text, made.packets.in_phases.text}) {
      if (text.empty() || (tests::sanitized && has_compiled)) continue;  // sanitizers see nothing of NVRTC
      has_compiled = true;
      std::string cubin;
      const ncast_status status = compile_by_nvrtc(with_included_sources(text), architecture, &cubin);
      CHECK_MESSAGE(status == NCAST_OK, plan.name << ": " << std::string(ncast_last_error()));
      if (made.blocks.pieces && !made.blocks.pieces->reduces) continue;  // the library contains these kernels
      CHECK_MESSAGE(cubin.find(".nv.global") == std::string::npos, plan.name << " has variables, and loads slowly");
    }
  };
  compiles(test::all_reduce_plan(3, NCAST_CODEC_WINDOW), NCAST_BFLOAT16, NCAST_SUM);
  compiles(test::all_reduce_plan(3, NCAST_CODEC_RAW), NCAST_FLOAT16, NCAST_AVG, false, 80);
  compiles(test::all_gather_plan(3, NCAST_CODEC_WINDOW), NCAST_FLOAT32, NCAST_SUM, false);
  compiles(test::ring_all_reduce_plan(3, NCAST_CODEC_RAW), NCAST_FLOAT8_E4M3, NCAST_AVG);
  compiles(test::all_gather_plan(2, NCAST_CODEC_WINDOW), NCAST_FLOAT64, NCAST_SUM);
  compiles(test::put_all_gather_plan(2), NCAST_INT8, NCAST_SUM, true, 80);
  compiles(test::packets_all_reduce_plan(2, NCAST_CODEC_RAW), NCAST_INT64, NCAST_MAX);
  compiles(test::packets_all_reduce_plan(2, NCAST_CODEC_WINDOW), NCAST_FLOAT64, NCAST_SUM, true, 89);
  compiles(test::packets_relay_plan(NCAST_CODEC_WINDOW), NCAST_FLOAT16, NCAST_SUM);
  compiles(test::two_group_plan(2, NCAST_CODEC_RAW, true), NCAST_FLOAT16, NCAST_MIN);
}

TEST_CASE("only kernels that the communicator can use are compiled") {
  if (codec::find_kernel(codec::KernelKind::move, NCAST_CODEC_RAW, NCAST_INT8) == nullptr)  // a stand-in
    codec::add_kernel(codec::KernelKind::move, NCAST_CODEC_RAW, NCAST_INT8, {nullptr, 5, 5, 0, 1000});
  const auto compiled = [](bool packets, bool lines) {
    Target target{NCAST_INT8, NCAST_SUM, 90};
    target.packets = packets;
    target.lines = lines;
    CompiledPlan made;
    REQUIRE_MESSAGE(compile(test::all_gather_plan(2, NCAST_CODEC_RAW), target, "", &made) == NCAST_OK,
                    ncast_last_error());
    std::vector<bool> found;
    for (const std::string& cubin : made.cubins) found.push_back(!cubin.empty());
    return found;
  };
  CHECK(compiled(false, false) == std::vector{false, false, false, false, false});
  if (load_nvrtc() != NCAST_OK) {
    MESSAGE("skipped: " << ncast_last_error());
    return;
  }
  CHECK(compiled(true, false) == std::vector{false, true, false, true, false});
}

TEST_CASE("the compiler's message is in the error") {
  if (load_nvrtc() != NCAST_OK) {
    MESSAGE("skipped: " << ncast_last_error());
    return;
  }
  std::string cubin;
  CHECK(compile_by_nvrtc("__global__ void kernel() { nonsense; }", 90, &cubin) == NCAST_INTERNAL);
  CHECK(std::string(ncast_last_error()).find("nonsense") != std::string::npos);
  CHECK(compile_by_nvrtc("", 7, &cubin) == NCAST_UNSUPPORTED);
}

}  // namespace
}  // namespace narrowcast::executor::cuda::generated
