// Decisions by a cost model, and comparisons with NCCL. No GPU is needed.
#include "select/decision.h"

#include <string>

#include "doctest/doctest.h"
#include "models.h"
#include "operation/scaled_sum.h"
#include "plan/builders/builders.h"
#include "plan/steps.h"
#include "select/call_costs.h"
#include "support/environment.h"

namespace narrowcast::select {
namespace {

using namespace testing;

TEST_CASE("with a codec for results, the one that encodes values decides how a call runs") {
  const CostModel model;
  CallShape shape = gather_of(1 << 20, NCAST_CODEC_INT8 | NCAST_CODEC_FORCED);
  shape.operation = Operation::all_reduce;
  shape.result_codec = NCAST_CODEC_INT4;
  const Decision both = decide(shape, {model});
  CHECK(both.codec == NCAST_CODEC_INT8);
  CHECK(both.result_codec == NCAST_CODEC_INT4);
  CHECK(both.blocks->codec == NCAST_CODEC_INT8);
  shape.codec = NCAST_CODEC_RAW;
  shape.result_codec = NCAST_CODEC_INT4 | NCAST_CODEC_FORCED;
  const Decision results = decide(shape, {model});
  CHECK(results.codec == NCAST_CODEC_RAW);
  CHECK(results.result_codec == NCAST_CODEC_INT4);
  CHECK(results.blocks->codec == NCAST_CODEC_INT4);
  shape.result_codec = NCAST_CODEC_INT4;  // which does not pay for short calls
  shape.bytes = 1000;
  CHECK_FALSE(decide(shape, {model}).result_codec);
}

TEST_CASE("sums with a factor do not run by packets") {
  const CostModel model;
  CallShape shape = gather_of(1000, NCAST_CODEC_RAW);
  shape.operation = Operation::all_reduce;
  CHECK(decide(shape, {model}).runs_by_packets());
  shape.redop = operation::scaled_sum;
  CHECK_FALSE(decide(shape, {model}).runs_by_packets());
}

TEST_CASE("the cheapest candidate is chosen just before and after the curves cross") {
  const CostModel model = model_of(gathers);
  const Policy policy{model};
  CHECK(decide(gather_of(9999), policy).runs_by_packets());
  CHECK_FALSE(decide(gather_of(10001), policy).runs_by_packets());
  CHECK(decide(gather_of(10001), policy).codec == NCAST_CODEC_RAW);
  // The size at which window takes 97% of the time of raw.
  uint64_t coded = 100000;
  while (model.predict(Operation::all_gather, window, coded, 2, Link::nvlink) >
         0.97 * *model.predict(Operation::all_gather, raw, coded, 2, Link::nvlink))
    ++coded;
  CHECK(coded < 200000);
  CHECK(decide(gather_of(coded - 1), policy).codec == NCAST_CODEC_RAW);
  CHECK(decide(gather_of(coded), policy).codec == NCAST_CODEC_WINDOW);
  CHECK(decide(gather_of(coded, NCAST_CODEC_RAW), policy).codec == NCAST_CODEC_RAW);
}

TEST_CASE("a named codec is taken only where it is predicted to be fastest, unless it is forced") {
  const CostModel model = model_of(gathers);
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{1000}, uint64_t{20000}, uint64_t{1000000}}) {
    const Decision named = decide(gather_of(bytes, NCAST_CODEC_WINDOW), {model});
    const Decision chosen = decide(gather_of(bytes), {model});
    CHECK(named.candidate == chosen.candidate);
    CHECK(named.codec == chosen.codec);
    CHECK(named.codec_reason == std::string(chosen.codec_reason));
    const Decision forced = decide(gather_of(bytes, forced_window), {model});
    CHECK(forced.candidate == "blocks:window");
    CHECK(forced.codec == NCAST_CODEC_WINDOW);
    CHECK(forced.codec_reason == std::string("this codec is forced"));
  }
  CHECK(decide(gather_of(1000, forced_window), {model}).transport_reason == std::string("packets carry raw values"));
  const CostModel slow_blocks = model_of(
      "all_gather 2 nvlink packets 1000:2\nall_gather 2 nvlink blocks:raw 1000:10\nall_gather 2 nvlink blocks:window "
      "1000:5\n");
  CHECK(decide(gather_of(1000, NCAST_CODEC_WINDOW), {slow_blocks}).candidate == "packets");
  CallShape integers = gather_of(1000, forced_window);
  integers.dtype = NCAST_INT8;
  CHECK(decide(integers, {model}).codec_reason == std::string("no allowed codec encodes this type"));
}

TEST_CASE("auto chooses a codec only if it was measured, since another's times say nothing about its speed") {
  const uint64_t bytes = 1000000;
  // By the ratios alone, dense would take less time than window.
  const CostModel without_dense = model_of(
      "all_gather 2 nvlink blocks:raw 1000000:100\nall_gather 2 nvlink blocks:window 1000000:70\n"
      "all_gather 2 nvlink blocks:window/incompressible 1000000:102\n");
  CHECK(decide(gather_of(bytes, NCAST_CODEC_DENSE), {without_dense}).predicted.typical < 70);
  CHECK(decide(gather_of(bytes, NCAST_CODEC_DENSE), {without_dense}).codec == NCAST_CODEC_DENSE);
  CHECK(decide(gather_of(bytes), {without_dense}).codec == NCAST_CODEC_WINDOW);
  const auto measured = [](const char* dense) {
    return model_of(
        "all_gather 2 nvlink blocks:raw 1000000:100\nall_gather 2 nvlink blocks:window 1000000:70\n"
        "all_gather 2 nvlink blocks:dense 1000000:" +
        std::string(dense) + "\n");
  };
  CHECK(decide(gather_of(bytes), {measured("65")}).codec == NCAST_CODEC_DENSE);
  CHECK(decide(gather_of(bytes), {measured("75")}).codec == NCAST_CODEC_WINDOW);
}

TEST_CASE("forced packets carry raw values, unless a codec is forced") {
  const CostModel model = model_of(gathers);
  for (const ncast_codec codec : {ncast_codec{NCAST_CODEC_AUTO}, ncast_codec{NCAST_CODEC_WINDOW}}) {
    const Decision decision = decide(gather_of(1000000, codec), {model, ForcedTransport::packets});
    CHECK(decision.runs_by_packets());
    CHECK(decision.codec_reason == std::string("packets carry raw values"));
  }
  CHECK(decide(gather_of(1000000, forced_window), {model, ForcedTransport::packets}).candidate == "blocks:window");
}

TEST_CASE("the plan of a decision is one that the builders have for the call") {
  const CostModel model = model_of("");
  for (const operation::Description& row : operation::descriptions) {
    for (const int ranks : {2, 4}) {
      for (const Link link : {Link::nvlink, Link::shared_memory}) {
        for (const ForcedTransport forced : {ForcedTransport::packets, ForcedTransport::blocks}) {
          CallShape shape = gather_of(1 << 20, NCAST_CODEC_RAW);
          shape.operation = row.operation;
          shape.ranks = ranks;
          shape.link = link;
          const Decision decision = decide(shape, {model, forced});
          CAPTURE(row.name);
          CHECK((decision.plan != nullptr) == plan::has_plans(row.operation));
          if (decision.plan == nullptr) continue;
          CAPTURE(decision.plan);
          plan::Plan plan;
          CHECK(plan::builders::build(decision.plan, {.operation = row.operation, .ranks = ranks}, &plan) == NCAST_OK);
        }
      }
    }
  }
}

TEST_CASE("the plans of all-reduce, broadcast and reduce depend on how they run") {
  const CostModel model = model_of("");
  const auto decided = [&](Operation operation, uint64_t bytes, ForcedTransport forced, int ranks) {
    CallShape shape = gather_of(bytes, NCAST_CODEC_RAW);
    shape.operation = operation;
    shape.ranks = ranks;
    return decide(shape, {model, forced});
  };
  const auto plan_of = [&](Operation operation, uint64_t bytes, ForcedTransport forced, int ranks) {
    return std::string(decided(operation, bytes, forced, ranks).plan);
  };
  const auto check_shots = [&](uint64_t bytes, ForcedTransport forced, int ranks, const char* plan, const char* why) {
    const Decision decision = decided(Operation::all_reduce, bytes, forced, ranks);
    CHECK(decision.plan == std::string(plan));
    CHECK(decision.shots_reason == std::string(why));
  };
  check_shots(1024, ForcedTransport::packets, 2, "one_shot",
              "between two ranks a second shot does not reduce the traffic");
  check_shots(1024, ForcedTransport::packets, 4, "one_shot", "a second shot adds more latency than it saves");
  check_shots(256 << 10, ForcedTransport::packets, 8, "two_shot", "a second shot saves more time than it adds");
  const char* const forced = "NARROWCAST_PATH asks for it";
  check_shots(64 << 10, ForcedTransport::one_shot, 4, "one_shot", forced);
  check_shots(1 << 20, ForcedTransport::one_shot, 2, "one_shot", forced);
  check_shots(64 << 10, ForcedTransport::two_shot, 2, "two_shot", forced);
  check_shots(16 << 10, ForcedTransport::two_shot, 4, "two_shot", forced);
  check_shots((16 << 10) - 1, ForcedTransport::two_shot, 4, "one_shot", "the values are too few for two shots");
  CHECK(plan_of(Operation::all_gather, 1024, ForcedTransport::two_shot, 4) == "all_pairs");
  CHECK(plan_of(Operation::all_reduce, 1 << 20, ForcedTransport::blocks, 4) == "all_pairs");
  CHECK(plan_of(Operation::broadcast, 1 << 20, ForcedTransport::blocks, 4) == "relay");
  CHECK(plan_of(Operation::broadcast, 1 << 20, ForcedTransport::blocks, 2) == "all_pairs");
  CHECK(plan_of(Operation::broadcast, 1024, ForcedTransport::packets, 4) == "all_pairs");
  CHECK(plan_of(Operation::reduce, 1 << 20, ForcedTransport::blocks, 4) == "relay");
  CHECK(plan_of(Operation::reduce, 1024, ForcedTransport::packets, 4) == "all_pairs");
}

TEST_CASE("incompressible values may take 3% more than raw ones, or as long as NCCL") {
  const auto chosen = [](const std::string& lines) {
    return decide(gather_of(1000000), {model_of(gathers + lines)}).codec;
  };
  CHECK(chosen("all_gather 2 nvlink blocks:window/incompressible 1000000:103\n") == NCAST_CODEC_WINDOW);
  CHECK(chosen("all_gather 2 nvlink blocks:window/incompressible 1000000:104\n") == NCAST_CODEC_RAW);
  CHECK(
      chosen("all_gather 2 nvlink blocks:window/incompressible 1000000:104\nall_gather 2 nvlink nccl 1000000:102\n") ==
      NCAST_CODEC_WINDOW);
}

TEST_CASE("packets are used only if they are possible, even if they are cheaper or forced") {
  const CostModel model = model_of(
      "all_gather 2 nvlink packets 1:1 2:1\nall_gather 2 nvlink blocks:raw 1:9 2:9\nall_gather 2 nvlink blocks:window "
      "1:9 2:9\n"
      "send 2 nvlink packets 1:1 2:1\nsend 2 nvlink blocks:raw 1:9 2:9\nsend 2 nvlink blocks:window 1:9 2:9\n");
  const uint64_t most = most_packet_bytes(Operation::all_gather, 2, Link::nvlink);
  for (const ForcedTransport wanted : {ForcedTransport::none, ForcedTransport::packets}) {
    CHECK(decide(gather_of(most), {model, wanted}).runs_by_packets());
    CHECK_FALSE(decide(gather_of(most + 1), {model, wanted}).runs_by_packets());
    CallShape send = gather_of(100);
    send.operation = Operation::send;
    CHECK_FALSE(decide(send, {model, wanted}).runs_by_packets());
    CHECK(costs_of(send, model)[packets].typical == 0);
    CallShape by_pcie = gather_of(most);
    by_pcie.link = Link::pcie;
    CHECK_FALSE(decide(by_pcie, {model, wanted}).runs_by_packets());
    CallShape over_host = gather_of(most_packet_bytes(Operation::all_gather, 2, Link::host));
    over_host.link = Link::host;
    CHECK(decide(over_host, {model, wanted}).runs_by_packets() == (wanted == ForcedTransport::packets));
    over_host.bytes += 2;
    CHECK_FALSE(decide(over_host, {model, wanted}).runs_by_packets());
  }
  CHECK_FALSE(decide(gather_of(100), {model, ForcedTransport::blocks}).runs_by_packets());
}

TEST_CASE("packets are not used if they were not measured") {
  const CostModel model = model_of("all_gather 2 nvlink blocks:raw 1:9\nall_gather 2 nvlink blocks:window 1:9\n");
  const Decision choice = decide(gather_of(100), {model});
  CHECK_FALSE(choice.runs_by_packets());
  CHECK(std::string(choice.transport_reason) == "packets were not measured");
}

TEST_CASE("without measurements, short messages are sent by packets, and long ones through host memory are encoded") {
  const CostModel model = model_of("");
  CHECK(decide(gather_of(64 << 10), {model}).runs_by_packets());
  CHECK_FALSE(decide(gather_of((64 << 10) + 1), {model}).runs_by_packets());
  CHECK(decide(gather_of(1 << 20), {model}).codec == NCAST_CODEC_RAW);
  CallShape shape = gather_of(256 << 10);
  shape.link = Link::host;
  CHECK(decide(shape, {model}).codec == NCAST_CODEC_WINDOW);
  shape.codec = bounded();
  CHECK(decide(shape, {model}).codec == bounded());
  --shape.bytes;
  CHECK(decide(shape, {model}).codec == NCAST_CODEC_RAW);
  shape.codec = NCAST_CODEC_AUTO;
  CHECK(decide(shape, {model}).codec == NCAST_CODEC_RAW);
}

TEST_CASE("few CTAs send long messages by blocks") {
  const CostModel model = model_of(
      "all_gather 2 nvlink packets 1000:3 1000000:50\nall_gather 2 nvlink blocks:raw 1000:6 1000000:60\n"
      "all_gather 2 nvlink blocks:window 1000:6 1000000:60\n");
  CallShape shape = gather_of(1'000'000);
  shape.codec = NCAST_CODEC_RAW;
  CHECK(decide(shape, {model}).runs_by_packets());
  shape.max_ctas = 8;
  CHECK(costs_of(shape, model)[packets].typical > 150);
  CHECK_FALSE(decide(shape, {model}).runs_by_packets());
  shape.bytes = 1000;
  CHECK(costs_of(shape, model)[packets].typical == doctest::Approx(3));
  CHECK(decide(shape, {model}).runs_by_packets());
}

TEST_CASE("decisions depend on the text of the model and not on the environment") {
  const CostModel sent = CostModel::shipped();
  const narrowcast::testing::Environment model("NARROWCAST_COST_MODEL", "/nowhere");
  const narrowcast::testing::Environment path("NARROWCAST_PATH", "blocks");
  const narrowcast::testing::Environment ctas("NARROWCAST_MAX_CTAS", "1");
  CostModel received;
  REQUIRE(CostModel::parse(sent.text(), "the cost model of rank 0", &received) == NCAST_OK);
  for (const operation::Description& row : operation::descriptions) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (uint64_t bytes = 2; bytes <= uint64_t{1} << 30; bytes *= 2) {
        const CallShape shape{row.operation, NCAST_BFLOAT16, NCAST_CODEC_AUTO, bytes, ranks};
        const Decision here = decide(shape, {sent}), there = decide(shape, {received});
        CHECK(here.runs_by_packets() == there.runs_by_packets());
        CHECK(here.codec == there.codec);
      }
    }
  }
}

TEST_CASE("a single rank copies its values, but sends to itself by blocks") {
  CallShape shape = gather_of(1000);
  shape.ranks = 1;
  CHECK(decide(shape, {model_of("")}).candidate == "copy");
  shape.operation = Operation::send;
  CHECK(decide(shape, {model_of("")}).candidate == "blocks:raw");
}

TEST_CASE("a call is compared with NCCL's fastest way and with its default") {
  const std::string lines = "all_gather 2 nvlink blocks:raw 1000:5\nall_gather 2 nvlink blocks:window 1000:9\n";
  const auto compared = [&](const std::string& more, const char* with) {
    return compare(decide(gather_of(1000, NCAST_CODEC_RAW), {model_of(lines + more)}),
                   std::string(with) == "nccl:default");
  };
  const std::string both = "all_gather 2 nvlink nccl 1000:4\nall_gather 2 nvlink nccl:default 1000:6\n";
  CHECK(std::string(compared(both, "nccl").reason) == "NCCL is predicted to be as fast");
  CHECK(compared(both, "nccl").nccl_microseconds == 4);
  CHECK(compared(both, "nccl:default").reason == nullptr);
  CHECK(compared(both, "nccl:default").nccl_microseconds == 6);
  CHECK(compared(both, "nccl:default").microseconds == 5);
  // NCCL wins a tie. If its default was not measured, its fastest way counts.
  CHECK(std::string(compared("all_gather 2 nvlink nccl 1000:5\n", "nccl:default").reason) ==
        "NCCL is predicted to be as fast");
  CHECK(std::string(compared("", "nccl").reason) == "the cost model does not know how long NCCL takes");
  CHECK(std::string(compare(decide(gather_of(1000), {model_of("")}), false).reason) ==
        "the cost model does not know this call");
}

TEST_CASE("no decision about an all_to_all_v depends on its bytes") {
  const CostModel model =
      model_of("all_to_all 2 nvlink blocks:raw 1:1 1000000:100\nall_to_all 2 nvlink blocks:window 1:1 1000000:10\n");
  const CostModel slow_codec =
      model_of("all_to_all 2 nvlink blocks:raw 1:1 1000000:100\nall_to_all 2 nvlink blocks:window 1:1 1000000:101\n");
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1000000}}) {
    CallShape shape = gather_of(bytes);
    shape.operation = Operation::all_to_all_v;
    const Decision decision = decide(shape, {model});
    CHECK(decision.candidate == "blocks:window");
    CHECK(std::string(decision.codec_reason) == "each rank encodes the pieces that gain from it");
    CHECK(std::string(decide(shape, {slow_codec}).codec_reason) == "not even long pieces gain from coding");
    CHECK(decide(shape, {slow_codec}).candidate == "blocks:raw");
    shape.codec = NCAST_CODEC_RAW;
    CHECK(decide(shape, {model}).candidate == "blocks:raw");
    shape.codec = forced_window;
    CHECK(decide(shape, {model}).candidate == "blocks:window");
    shape.codec = NCAST_CODEC_AUTO;
    shape.operation = Operation::all_to_all;
    if (bytes != 0) CHECK(decide(shape, {model}).codec == NCAST_CODEC_WINDOW);
  }
}

TEST_CASE("between GPUs on several hosts blocks carry every call, and auto encodes what the network takes long for") {
  const auto decided = [](const char* lines, uint64_t bytes, ncast_codec codec, Operation operation) {
    const CostModel model = model_of(lines);
    CallShape shape = gather_of(bytes, codec);
    shape.operation = operation;
    shape.link = Link::gpu_network;
    const Decision decision = decide(shape, {model, ForcedTransport::packets});
    REQUIRE(decision.blocks);
    CHECK(std::string(decision.transport_reason) == "packets do not reach other hosts");
    return codec::describe(decision.codec);
  };
  for (const Operation operation : {Operation::send, Operation::recv, Operation::all_gather, Operation::all_to_all,
                                    Operation::all_reduce, Operation::reduce_scatter, Operation::broadcast}) {
    CAPTURE(operation::name_of(operation));
    for (const char* const gbps : {"", "network_gbps 1\n", "network_gbps 400\n"}) {
      CHECK(decided(gbps, 32 << 20, NCAST_CODEC_AUTO, operation) == "window");
      CHECK(decided(gbps, 32 << 20, NCAST_CODEC_RAW, operation) == "raw");
      CHECK(decided(gbps, 32 << 20, NCAST_CODEC_DENSE, operation) == "dense");
      CHECK(decided(gbps, 1000, NCAST_CODEC_AUTO, operation) == "raw");
    }
  }
  // Many warps would only wait for the network.
  CallShape shape = gather_of(uint64_t{1} << 30, NCAST_CODEC_RAW);
  shape.link = Link::gpu_network;
  CHECK(decide(shape, {CostModel::shipped()}).blocks->ctas == most_ctas_over_host(shape.shared_bytes, true) / 2);
}

}  // namespace
}  // namespace narrowcast::select
