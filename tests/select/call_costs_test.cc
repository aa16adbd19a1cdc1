// Predicted times that are adapted to a call.
#include "select/call_costs.h"

#include <string>
#include <tuple>
#include <utility>

#include "doctest/doctest.h"
#include "models.h"
#include "select/decision.h"

namespace narrowcast::select {
namespace {

using namespace testing;

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
  // As measured with 8, 16 and 32 CTAs (bench/results/2xh200/2026-11-23_collectives_ctas.json).
  for (const auto& [operation, with_32, with_16, with_8] :
       {std::tuple(Operation::all_gather, 1.089, 1.228, 2.277), {Operation::all_reduce, 1.147, 1.329, 2.599}}) {
    CallShape few = shape;
    few.operation = operation;
    for (const auto& [ctas, slowdown] : {std::pair(32, with_32), {16, with_16}, {8, with_8}}) {
      few.max_ctas = static_cast<uint32_t>(ctas);
      CHECK(costs_of(few, model)[raw].typical / 100 == doctest::Approx(slowdown).epsilon(0.12));
    }
  }
  shape.max_ctas = 32;
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

}  // namespace
}  // namespace narrowcast::select
