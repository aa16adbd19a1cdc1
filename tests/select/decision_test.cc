// Decisions by a cost model, and comparisons with NCCL. No GPU is needed.
#include "select/decision.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "codec/codec.h"
#include "doctest/doctest.h"
#include "models.h"
#include "operation/scaled_sum.h"
#include "plan/builders/builders.h"
#include "plan/steps.h"
#include "select/allowed_codecs.h"
#include "select/decider.h"
#include "select/error_bound.h"
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

ncast_codec within(const char* relative) {
  ncast_codec codec = 0;
  REQUIRE(ncast_codec_parse(("within:relative=" + std::string(relative)).c_str(), &codec) == NCAST_OK);
  return codec;
}

CallShape all_reduce_of(ncast_redop op, int ranks, ncast_codec codec, ncast_dtype dtype = NCAST_FLOAT32) {
  return {.operation = Operation::all_reduce,
          .dtype = dtype,
          .codec = codec,
          .bytes = 1 << 20,
          .ranks = ranks,
          .redop = op};
}

TEST_CASE("an error budget allows exactly the lossy codecs whose bound of the call fits, shortest payloads first") {
  for (const char* relative : {"0.003", "0.008", "0.02", "0.3", "0.9"}) {
    for (const int ranks : {1, 2, 8}) {
      for (const ncast_redop op : {NCAST_SUM, NCAST_AVG, NCAST_MAX}) {
        const CallShape shape = all_reduce_of(op, ranks, within(relative));
        const AllowedCodecs allowed = allowed_codecs(shape);
        CAPTURE(relative);
        CAPTURE(allowed.text());
        const std::vector<double> largest(static_cast<size_t>(ranks), 8), smaller(largest.size(), 8 * 0x1p-8);
        const double limit = std::stod(relative) * 8 * (op == NCAST_SUM ? ranks : 1);
        for (size_t i = 0; i < ncast_codec_count(); ++i) {
          ncast_codec_info info = {};
          info.struct_bytes = sizeof info;
          REQUIRE(ncast_codec_describe(i, &info) == NCAST_OK);
          if (info.exact || codec::prior_ratio(info.codec, shape.dtype) == 1) continue;
          const double bound = error_bound(shape.operation, shape.dtype, op, info.codec, largest);
          if (std::abs(bound - limit) < 1e-5 * limit) continue;
          const bool is_relative = error_bound(shape.operation, shape.dtype, op, info.codec, smaller) <= 0x1p-7 * bound;
          CHECK(allowed.contains(info.codec) == (bound < limit && is_relative && op != NCAST_MAX));
        }
        CHECK(allowed.contains(NCAST_CODEC_WINDOW));
        for (size_t i = 1; i < allowed.codecs.size(); ++i)
          CHECK(codec::prior_ratio(allowed.codecs[i - 1], NCAST_FLOAT32) <=
                codec::prior_ratio(allowed.codecs[i], NCAST_FLOAT32));
      }
    }
  }
  CHECK_FALSE(allowed_codecs(all_reduce_of(NCAST_SUM, 4, within("1e-4"))).has_lossy());
  CHECK_FALSE(allowed_codecs(all_reduce_of(NCAST_SUM, 4, within("0.5"), NCAST_INT32)).has_lossy());
}

TEST_CASE("within a budget the fastest codec runs by the model or, if none was measured, that of shortest payloads") {
  const std::string lines =
      "all_gather 2 nvlink blocks:raw 1000000:100\nall_gather 2 nvlink blocks:window 1000000:80\n"
      "all_gather 2 nvlink blocks:window/incompressible 1000000:101\n";
  const auto decided = [&](const std::string& more, const char* relative, ncast_codec flag = 0) {
    return decide(gather_of(1000000, within(relative) | flag), {model_of(lines + more)});
  };
  CHECK(decided("", "0.05").codec == NCAST_CODEC_INT6);
  CHECK(decided("", "0.05").codec_reason ==
        std::string("it meets the error budget, with shorter payloads than the others that do, none of which was "
                    "measured"));
  const std::string measured =
      "all_gather 2 nvlink blocks:int8 1000000:60\nall_gather 2 nvlink blocks:e4m3 1000000:55\n"
      "all_gather 2 nvlink blocks:int4 1000000:40\n";
  CHECK(decided(measured, "0.05").codec == NCAST_CODEC_E4M3);
  CHECK(decided(measured, "0.05").codec_reason ==
        std::string("it meets the error budget, and is predicted to be faster than the others that do"));
  CHECK(decided(measured, "0.02").codec == NCAST_CODEC_INT8);
  const Decision exact = decided(measured, "0.0001");
  CHECK(exact.codec == NCAST_CODEC_WINDOW);
  CHECK(exact.codec_reason == std::string("no lossy codec meets the error budget, and this one loses nothing"));
  const std::string slow = "all_gather 2 nvlink blocks:int8 1000000:90\n";
  CHECK(decided(slow, "0.02").codec == NCAST_CODEC_WINDOW);
  CHECK(decided("all_gather 2 nvlink packets 1000000:1\n", "0.02").codec == NCAST_CODEC_RAW);
  CHECK(decided("all_gather 2 nvlink packets 1000000:1\n" + measured, "0.05", NCAST_CODEC_FORCED).codec ==
        NCAST_CODEC_E4M3);
}

TEST_CASE("calls with a budget that reduce in different ways are decided apart") {
  const CommTraits traits{2, Link::nvlink};
  Decider decider(traits, model_of("all_reduce 2 nvlink blocks:raw 1:100\nall_reduce 2 nvlink blocks:int8 1:9\n"));
  const auto codec_of = [&](ncast_redop op) {
    return decider.decide(decider.shape_of(Operation::all_reduce, NCAST_FLOAT32, within("0.0075"), 4096, op)).codec;
  };
  CHECK(codec_of(NCAST_SUM) == NCAST_CODEC_INT8);
  CHECK(codec_of(NCAST_PROD) == NCAST_CODEC_RAW);  // of products the errors add up
}

TEST_CASE("a call allows no codec, the one that it names, or every exact one") {
  const auto allowed = [](ncast_codec codec) { return allowed_codecs(gather_of(1, codec)); };
  CHECK(allowed(NCAST_CODEC_RAW).codecs.empty());
  CHECK(allowed(NCAST_CODEC_AUTO).codecs == std::vector<ncast_codec>{NCAST_CODEC_WINDOW, NCAST_CODEC_DENSE});
  CHECK(allowed(bounded()).codecs == std::vector{bounded()});
  CHECK_FALSE(allowed(bounded()).forced);
  const AllowedCodecs forced = allowed(bounded() | NCAST_CODEC_FORCED);
  CHECK(forced.codecs == std::vector{bounded()});
  CHECK(forced.forced);
  CHECK(forced.text() == "int8:group=64!");
}

// Raw is 100 us for a million bytes; window takes 70 us if the values shrink to its prior ratio of 0.699.
const std::string by_link =
    "all_gather 2 nvlink packets 1000:2\n"
    "all_gather 2 nvlink blocks:raw 1000:5 1000000:100\n"
    "all_gather 2 nvlink blocks:window 1000:8 1000000:70\n"
    "all_gather 2 nvlink blocks:window/incompressible 1000:8 1000000:100\n";

TEST_CASE("the time of a codec that was not measured follows from a measured codec and the prior ratios") {
  const CostModel model = model_of(by_link);
  const size_t derived = index_of("blocks:int8");
  const CallShape shape = gather_of(1000000, bounded());
  // It stores bfloat16 with a ratio of 0.531: 100 us - 30 us * 0.469 / 0.301.
  CHECK(costs_of(shape, model)[derived].typical == doctest::Approx(53.3).epsilon(0.01));
  CHECK(costs_of(shape, model)[derived].incompressible == costs_of(shape, model)[derived].typical);  // fixed payloads
  CHECK(decide(shape, {model}).candidate == "blocks:int8");
  CHECK(decide(shape, {model}).codec == bounded());
  CHECK(decide(gather_of(1000, bounded()), {model}).candidate == "packets");
  CHECK_FALSE(costs_of(gather_of(1000000), model)[derived].is_known());  // not allowed: the library never chooses it
  // Not below the time of its bytes on the link.
  const CostModel steep = model_of(
      "all_gather 2 nvlink blocks:raw 1000000:100\nall_gather 2 nvlink blocks:window 1000000:10\n"
      "all_gather 2 nvlink blocks:window/incompressible 1000000:100\n");
  CHECK(costs_of(shape, steep)[derived].typical == doctest::Approx(53.1));
  // Times of its own precede.
  const CostModel measured = model_of(by_link + "all_gather 2 nvlink blocks:int8 1000000:120\n");
  CHECK(costs_of(shape, measured)[derived].typical == doctest::Approx(120));
  CHECK(decide(shape, {measured}).candidate == "blocks:raw");
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

TEST_CASE("few CTAs, or CTAs with few warps, slow encoded values down") {
  const CostModel model = model_of(
      "all_gather 2 nvlink blocks:raw 1000000:100\nall_gather 2 nvlink blocks:window 1000000:75\n"
      "all_gather 2 nvlink blocks:window/incompressible 1000000:100\n"
      "all_reduce 2 nvlink blocks:raw 1000000:100\nall_reduce 2 nvlink blocks:window 1000000:75\n");
  CallShape shape = gather_of(1'000'000);
  CHECK(decide(shape, {model}).codec == NCAST_CODEC_WINDOW);
  // As measured with 64 CTAs (bench/results/2xh200/2026-11-29_shared_memory.json).
  for (const auto& [operation, slowdown] : {std::pair(Operation::all_gather, 1.342), {Operation::all_reduce, 1.461}}) {
    CallShape few = shape;
    few.operation = operation;
    const double most = costs_of(few, model)[window].typical;
    few.shared_bytes = 99 << 10;
    CHECK(costs_of(few, model)[window].typical / most == doctest::Approx(slowdown).epsilon(0.02));
  }
  shape.shared_bytes = 99 << 10;
  CHECK(costs_of(shape, model_of("shared_kib 99\nall_gather 2 nvlink blocks:raw 1000000:100\n"
                                 "all_gather 2 nvlink blocks:window 1000000:75\n"))[window]
            .typical == doctest::Approx(75));  // measured with as many
  shape.shared_bytes = most_shared_bytes;
  shape.max_ctas = 32;
  CHECK(costs_of(shape, model)[raw].typical == doctest::Approx(100));
  CHECK(costs_of(shape, model)[window].typical > 100);
  CHECK(decide(shape, {model}).codec == NCAST_CODEC_RAW);
  shape.max_ctas = 8;
  CHECK(costs_of(shape, model)[raw].typical > 200);
  shape.link = Link::host;
  CHECK(costs_of(shape, model)[raw].typical == 0);
}

TEST_CASE("packets through host memory were measured with the CTAs that are used there") {
  const CostModel model = model_of(
      "all_reduce 2 host packets 1000:3 1000000:50\nall_reduce 2 host blocks:raw 1000:6\nall_reduce 2 host "
      "blocks:window 1000:6\n");
  CallShape shape = gather_of(1'000'000);
  shape.operation = Operation::all_reduce;
  shape.link = Link::host;
  shape.max_ctas = most_ctas_over_host(shape.shared_bytes, true);
  CHECK(costs_of(shape, model)[packets].typical == doctest::Approx(50));
  shape.max_ctas /= 2;
  CHECK(costs_of(shape, model)[packets].typical == doctest::Approx(100));
}

TEST_CASE("through host memory, four CTAs are enough to move encoded values, but not to reduce them") {
  const std::string times = " 2 host blocks:raw 1000000:100\n", coded = " 2 host blocks:window 1000000:80\n";
  const CostModel model =
      model_of("all_gather" + times + "all_gather" + coded + "all_reduce" + times + "all_reduce" + coded);
  const auto codec_of = [&](Operation operation, uint32_t max_ctas) {
    CallShape shape = gather_of(1'000'000);
    shape.operation = operation;
    shape.link = Link::host;
    shape.max_ctas = max_ctas;
    return decide(shape, {model}).codec;
  };
  CHECK(codec_of(Operation::all_gather, 4) == NCAST_CODEC_WINDOW);
  CHECK(codec_of(Operation::all_reduce, 4) == NCAST_CODEC_RAW);
  CHECK(codec_of(Operation::all_reduce, 8) == NCAST_CODEC_WINDOW);
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

TEST_CASE("types that shrink less gain less if the link is the bottleneck, and cost as much if the codec is") {
  const CostModel model = model_of(
      "all_gather 2 nvlink blocks:raw 1000:5 1000000:100\n"
      "all_gather 2 nvlink blocks:window 1000:8 1000000:70\n"
      "all_gather 2 nvlink blocks:window/incompressible 1000:6 1000000:100\n");
  const auto costs = [&](ncast_dtype dtype, uint64_t bytes) {
    return costs_of({Operation::all_gather, dtype, NCAST_CODEC_AUTO, bytes, 2}, model);
  };
  CHECK(costs(NCAST_BFLOAT16, 1000000)[window].typical == doctest::Approx(70));
  CHECK(costs(NCAST_FLOAT32, 1000000)[window].typical ==
        doctest::Approx(85).epsilon(0.01));  // it saves about half as much
  double before = 70;
  for (const ncast_dtype dtype : {NCAST_FLOAT8_E5M2, NCAST_FLOAT32, NCAST_FLOAT64, NCAST_FLOAT16, NCAST_FLOAT8_E4M3}) {
    CHECK(costs(dtype, 1000000)[window].typical > before);
    before = costs(dtype, 1000000)[window].typical;
    CHECK(before < 100);
    CHECK(costs(dtype, 1000)[window].typical == doctest::Approx(8));
  }
  CHECK(costs(NCAST_INT8, 1000000)[window].typical == 0);
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

TEST_CASE("between processes values are encoded if that was measured to be faster, or is forced") {
  const auto candidate_of = [](const CostModel& model, ncast_codec codec) {
    CallShape shape = gather_of(uint64_t{64} << 20, codec);
    shape.link = Link::shared_memory;
    return std::string(decide(shape, {model}).candidate);
  };
  const CostModel measured = parsed(
      "narrowcast-costs 2 a machine\nall_gather 2 shm frames:raw 1000:10 100000000:1000\n"
      "all_gather 2 shm frames:window 1000:5 100000000:500\n");
  for (const ncast_codec codec : {NCAST_CODEC_AUTO, NCAST_CODEC_RAW, NCAST_CODEC_WINDOW}) {
    CHECK(candidate_of(CostModel::shipped(), codec) == "frames:raw");  // not measured
    CHECK(candidate_of(measured, codec) == (codec == NCAST_CODEC_RAW ? "frames:raw" : "frames:window"));
  }
  CHECK(candidate_of(CostModel::shipped(), forced_window) == "frames:window");
}

TEST_CASE("between hosts auto encodes what a core encodes faster than the network carries it") {
  const auto decided = [](const std::string& lines, Operation operation, uint64_t bytes, ncast_codec codec,
                          ncast_dtype dtype = NCAST_BFLOAT16) {
    const CostModel model = model_of(lines);
    CallShape shape = gather_of(bytes, codec);
    shape.operation = operation;
    shape.dtype = dtype;
    shape.link = Link::network;
    return codec::describe(decide(shape, {model}).codec);
  };
  constexpr uint64_t long_bytes = 32 << 20;
  for (const Operation operation : {Operation::send, Operation::recv, Operation::broadcast, Operation::all_gather,
                                    Operation::all_to_all, Operation::all_to_all_v, Operation::all_reduce}) {
    CAPTURE(operation::name_of(operation));
    for (const char* const gbps : {"1", "5"}) {
      const std::string slow = std::string("network_gbps ") + gbps + "\n";
      CHECK(decided(slow, operation, long_bytes, NCAST_CODEC_AUTO) == "window");
      CHECK(decided(slow, operation, long_bytes, NCAST_CODEC_RAW) == "raw");
      CHECK(decided(slow, operation, long_bytes, NCAST_CODEC_DENSE) == "dense");
    }
    CHECK(decided("network_gbps 100\n", operation, long_bytes, NCAST_CODEC_AUTO) == "raw");
  }
  CHECK(decided("", Operation::all_gather, long_bytes, NCAST_CODEC_AUTO) == "window");  // 10 Gbit/s are assumed
  // A codec is not used for values that it does not shrink, or for a message that is over before it is encoded.
  CHECK(decided("network_gbps 1\n", Operation::all_gather, long_bytes, NCAST_CODEC_AUTO, NCAST_INT32) == "raw");
  CHECK(decided("network_gbps 5\n", Operation::all_gather, 64 << 10, NCAST_CODEC_AUTO) == "raw");
  // Measured times precede.
  CHECK(decided("network_gbps 1\nall_gather 2 network frames:raw 1000:1\nall_gather 2 network frames:window 1000:2\n",
                Operation::all_gather, long_bytes, NCAST_CODEC_AUTO) == "raw");
}

TEST_CASE("the plan of ranks of which some share a host combines values once a host, unless the codec is lossy") {
  const auto plan_of = [](Operation operation, ncast_codec codec, std::optional<ncast_codec> result_codec = {}) {
    CallShape shape = gather_of(1000000, codec);
    shape.operation = operation;
    shape.ranks = 4;
    shape.link = Link::network;
    shape.has_levels = true;
    shape.result_codec = result_codec;
    return std::string(decide(shape, {CostModel::shipped()}).plan);
  };
  const ncast_codec lossy = bounded() | NCAST_CODEC_FORCED;
  for (const ncast_codec codec : {ncast_codec{NCAST_CODEC_RAW}, forced_window, lossy}) {
    CHECK(plan_of(Operation::all_gather, codec) == "two_level");
    CHECK(plan_of(Operation::broadcast, codec) == "two_level");
    CHECK(plan_of(Operation::all_to_all, codec) == "all_pairs");
    for (const Operation operation : {Operation::all_reduce, Operation::reduce, Operation::reduce_scatter})
      CHECK(plan_of(operation, codec) == (codec == lossy ? "all_pairs" : "two_level"));
  }
  CHECK(plan_of(Operation::all_reduce, forced_window, lossy) == "all_pairs");
  CHECK(plan_of(Operation::all_reduce, forced_window, NCAST_CODEC_RAW) == "two_level");
}

TEST_CASE("between processes a send and its receive use the same codec") {
  const CostModel measured = parsed(
      "narrowcast-costs 2 a machine\nsend 2 shm frames:raw 1000:10 100000000:1000\n"
      "send 2 shm frames:window 1000:5 100000000:500\n");
  for (const Operation operation : {Operation::send, Operation::recv}) {
    CallShape shape = gather_of(1000000, NCAST_CODEC_WINDOW);
    shape.operation = operation;
    shape.link = Link::shared_memory;
    CHECK(decide(shape, {measured}).codec == NCAST_CODEC_WINDOW);
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

}  // namespace
}  // namespace narrowcast::select
