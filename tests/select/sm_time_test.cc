// Calls that compute hides: their SM time decides. No GPU is needed.
#include "select/sm_time.h"

#include <string>

#include "doctest/doctest.h"
#include "models.h"
#include "select/decider.h"
#include "select/decision.h"

namespace narrowcast::select {
namespace {

using namespace testing;

// As measured between two H200 with limits of CTAs (bench/results/2xh200/2026-11-23_collectives_ctas.json).
const std::string measured =
    "all_gather 2 nvlink blocks:raw 134217728:384.2\n"
    "all_gather 2 nvlink blocks:raw@8 134217728:874.7\n"
    "all_gather 2 nvlink blocks:raw@16 134217728:471.9\n"
    "all_gather 2 nvlink blocks:raw@32 134217728:418.3\n"
    "all_gather 2 nvlink blocks:window 134217728:286.2\n"
    "all_gather 2 nvlink blocks:window@8 134217728:1562.7\n"
    "all_gather 2 nvlink blocks:window@16 134217728:797.2\n"
    "all_gather 2 nvlink blocks:window@32 134217728:420.5\n";
const std::string of_nccl = "all_gather 2 nvlink nccl:default 134217728:544.7\n";

CallShape hidden(uint64_t bytes, ncast_codec codec = NCAST_CODEC_AUTO) {
  CallShape shape = gather_of(bytes, codec);
  shape.hidden = true;
  return shape;
}
constexpr uint64_t long_bytes = uint64_t{128} << 20;

TEST_CASE("a hidden call takes the least SM time among the ways that are not slower than NCCL") {
  const CostModel model = model_of(measured + of_nccl);
  CallShape exposed = hidden(long_bytes);
  exposed.hidden = false;
  CHECK(decide(exposed, {model}).candidate == "blocks:window");
  CHECK(decide(exposed, {model}).ctas == 64);
  const Decision decision = decide(hidden(long_bytes), {model});
  CHECK(decision.candidate == "blocks:raw");
  CHECK(decision.ctas == 16);
  CHECK(decision.blocks->max_ctas == 16);
  CHECK(decision.blocks->copy_ctas == 0);
  CHECK(decision.predicted.typical == doctest::Approx(471.9));
  CHECK(decision.predicted.typical < decision.nccl_default.typical);
  CHECK(compare(decision, true).reason == nullptr);
  // With 8 CTAs it would take less SM time, but 874.7 us.
  const CostModel slow_nccl = model_of(measured + "all_gather 2 nvlink nccl:default 134217728:900\n");
  CHECK(decide(hidden(long_bytes), {slow_nccl}).ctas == 8);
  // With windows NCCL is faster, which is not known when the call is decided.
  const CostModel windows = model_of(measured + of_nccl + "all_gather 2 nvlink nccl 134217728:450\n");
  CHECK(decide(hidden(long_bytes), {windows}).ctas == 16);
  CHECK(compare(decide(hidden(long_bytes), {windows}), false).reason == std::string("NCCL is predicted to be as fast"));
}

TEST_CASE("without a time of NCCL a hidden call may take three percent longer than raw values") {
  const CostModel model = model_of(measured);
  const Decision decision = decide(hidden(long_bytes), {model});
  // Raw values with 32 CTAs, or with 48, take too long.
  CHECK(decision.candidate == "blocks:window");
  CHECK(decision.ctas == 48);
  CHECK(decision.predicted.typical <= 1.03 * 384.2);
  const Decision raw_values = decide(hidden(long_bytes, NCAST_CODEC_RAW), {model});
  CHECK(raw_values.ctas == 64);
  CHECK(raw_values.blocks->copy_ctas == 8);
}

TEST_CASE("NCCL runs a long hidden call if it takes less SM time") {
  const std::string coded = "all_gather 2 nvlink blocks:window 134217728:300\n",
                    slow_nccl = "all_gather 2 nvlink nccl 134217728:560\n";
  const CostModel model = model_of("all_gather 2 nvlink blocks:raw 134217728:500\n" + coded + slow_nccl);
  const Decision raw_values = decide(hidden(long_bytes), {model});
  CHECK(raw_values.candidate == "blocks:raw");
  CHECK(raw_values.ctas == 20);
  CHECK(raw_values.nccl_ctas == 24);
  CHECK(compare(raw_values, true).reason == nullptr);
  const CostModel slow_raw = model_of("all_gather 2 nvlink blocks:raw 134217728:600\n" + coded + slow_nccl);
  const Decision encoded = decide(hidden(long_bytes), {slow_raw});
  CHECK(encoded.candidate == "blocks:window");
  CHECK(compare(encoded, true).reason ==
        std::string("compute hides the call, and NCCL is predicted to take less SM time"));
  // What NCCL needs for short calls, and over other links, is not known.
  CHECK(ctas_of_nccl(gather_of(384 << 10)) == 24);
  CHECK(ctas_of_nccl(gather_of((384 << 10) - 1)) == 0);
  CallShape over_host = gather_of(long_bytes);
  over_host.link = Link::host;
  CHECK(ctas_of_nccl(over_host) == 0);
}

TEST_CASE("a forced codec, and one that the call does not allow, are as in other calls") {
  const CostModel model = model_of(measured + of_nccl);
  const Decision forced = decide(hidden(long_bytes, forced_window), {model});
  CHECK(forced.candidate == "blocks:window");
  CHECK(forced.ctas == 64);
  CHECK(decide(hidden(long_bytes), {model, ForcedTransport::blocks}).candidate == "blocks:window");
  // Encoded values would take the least SM time.
  const CostModel cheap = model_of(
      "all_gather 2 nvlink blocks:raw 134217728:500\nall_gather 2 nvlink blocks:window 134217728:100\n"
      "all_gather 2 nvlink blocks:window@16 134217728:110\nall_gather 2 nvlink blocks:window/incompressible "
      "134217728:505\nall_gather 2 nvlink blocks:window@16/incompressible 134217728:530\n"
      "all_gather 2 nvlink nccl 134217728:500\n");
  const Decision encoded = decide(hidden(long_bytes), {cheap});
  CHECK(encoded.codec == NCAST_CODEC_WINDOW);
  CHECK(encoded.ctas > 16);  // values that do not shrink may take 515 us
  CHECK(encoded.ctas < 64);
  CHECK(decide(hidden(long_bytes, NCAST_CODEC_RAW), {cheap}).codec == NCAST_CODEC_RAW);
  CHECK(decide(hidden(long_bytes, bounded()), {cheap}).codec == bounded());
}

TEST_CASE("short hidden calls run in the fastest way") {
  const CostModel& model = CostModel::shipped();
  for (const uint64_t bytes : {1, 1000, 10000}) {
    const Decision decision = decide(hidden(bytes), {model});
    CHECK(decision.runs_by_packets());
    CHECK(decision.predicted.typical == decide(gather_of(bytes), {model}).predicted.typical);
    CHECK(sm_time(decision.ctas, decision.predicted.typical) == 100);
  }
}

// The ranks compute a decision each, so it must not depend on what only one of them knows: all of it is in the shape.
TEST_CASE("hidden calls of the built-in model are never slower than NCCL, and take less SM time than exposed ones") {
  const CostModel& model = CostModel::shipped();
  int gaining = 0;
  for (const operation::Description& row : operation::descriptions) {
    for (uint64_t bytes = 1 << 10; bytes <= 1 << 28; bytes *= 2) {
      CallShape shape{row.operation, NCAST_BFLOAT16, NCAST_CODEC_AUTO, bytes, 2};
      shape.clusters = true;
      const Decision exposed = decide(shape, {model});
      shape.hidden = true;
      const Decision decision = decide(shape, {model});
      CAPTURE(row.name);
      CAPTURE(bytes);
      CHECK(decision.blocks.has_value() != decision.packets.has_value());
      if (row.operation == Operation::all_to_all_v) continue;  // the ranks do not know its bytes
      const double time = sm_time(decision.ctas, decision.predicted.typical),
                   of_exposed = sm_time(exposed.ctas, exposed.predicted.typical);
      CHECK(time <= 1.03 * of_exposed);
      if (time < of_exposed) ++gaining;
      const bool beats_nccl = exposed.predicted.typical < exposed.nccl_default.typical;
      CHECK((!beats_nccl || decision.predicted.typical <= decision.nccl_default.typical));
    }
  }
  CHECK(gaining > 50);
}

TEST_CASE("an all_to_all_v that compute hides has the codec and the limit of CTAs of long pieces") {
  const CostModel& model = CostModel::shipped();
  CallShape shape = hidden(long_bytes);
  shape.operation = Operation::all_to_all;
  shape.bytes = uint64_t{256} << 20;
  const Decision long_pieces = decide(shape, {model});
  shape.operation = Operation::all_to_all_v;
  shape.bytes = 0;
  const Decision decision = decide(shape, {model});
  CHECK(decision.codec == long_pieces.codec);
  CHECK(decision.blocks->max_ctas == long_pieces.blocks->max_ctas);
  CHECK(decision.blocks->max_ctas < 64);
}

TEST_CASE("hidden and exposed calls of a communicator do not share decisions") {
  Decider decider({.ranks = 2, .link = Link::nvlink, .hidden = true}, CostModel::shipped());
  const auto ctas = [&] {
    return decider.decide(decider.shape_of(Operation::all_reduce, NCAST_BFLOAT16, NCAST_CODEC_AUTO, long_bytes)).ctas;
  };
  const uint32_t first = ctas();
  CHECK(first < 60);
  decider.set_hidden(false);
  CHECK(ctas() >= 60);
  decider.set_hidden(true);
  CHECK(ctas() == first);
}

}  // namespace
}  // namespace narrowcast::select
