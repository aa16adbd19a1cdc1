// The cache of decisions. No GPU is needed.
#include "select/decider.h"

#include <tuple>

#include "doctest/doctest.h"

namespace narrowcast::select {
namespace {

bool equal(const Decision& a, const Decision& b) {
  const auto shape_of = [](const Decision& one) {
    const BlockShape blocks = one.blocks.value_or(BlockShape{});
    const PacketShape packets = one.packets.value_or(PacketShape{});
    return std::tuple(blocks.rings, blocks.ctas, blocks.warps, packets.two_shot, packets.ctas, packets.form);
  };
  return a.candidate == b.candidate && a.codec == b.codec && a.codec_reason == b.codec_reason &&
         a.transport_reason == b.transport_reason && a.predicted.typical == b.predicted.typical &&
         shape_of(a) == shape_of(b);
}

TEST_CASE("a cached decision is the one that would be made") {
  const CostModel& model = CostModel::shipped();
  Decider decider({.ranks = 2, .link = Link::nvlink}, model);
  for (int round = 0; round < 2; ++round) {
    for (const operation::Description& row : operation::descriptions) {
      for (const ncast_dtype dtype : {NCAST_BFLOAT16, NCAST_INT8}) {
        for (const ncast_codec codec : {NCAST_CODEC_RAW, NCAST_CODEC_WINDOW, NCAST_CODEC_AUTO}) {
          for (uint64_t bytes = 1; bytes <= uint64_t{1} << 30; bytes *= 2) {
            for (const uint64_t more : {0, 0, 1}) {
              const CallShape shape = decider.shape_of(row.operation, dtype, codec, bytes + more);
              CHECK(equal(decider.decide(shape), decide(shape, {model})));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("sums of values with factors do not share the decisions of others, which may be packets") {
  Decider decider({.ranks = 2, .link = Link::nvlink}, CostModel::shipped());
  for (const Operation reduction : {Operation::reduce, Operation::reduce_scatter, Operation::all_reduce}) {
    const auto packets_of = [&](ncast_redop redop) {
      return decider.decide(decider.shape_of(reduction, NCAST_FLOAT32, NCAST_CODEC_RAW, 4096, redop)).packets;
    };
    CHECK(packets_of(NCAST_SUM).has_value());
    CHECK_FALSE(packets_of(operation::scaled_sum).has_value());
  }
}

TEST_CASE("only long collectives beside compute have a limit of CTAs of their own") {
  Decider decider({.ranks = 2, .link = Link::nvlink, .max_collective_ctas = 28}, CostModel::shipped());
  for (const operation::Description& row : operation::descriptions) {
    const bool is_limited = row.operation == Operation::all_reduce || row.operation == Operation::all_gather ||
                            row.operation == Operation::reduce_scatter;
    const auto max_ctas_of = [&](uint64_t bytes) {
      return decider.shape_of(row.operation, NCAST_BFLOAT16, NCAST_CODEC_AUTO, bytes).max_ctas;
    };
    CHECK(max_ctas_of(least_limited_bytes) == (is_limited ? 28 : 64));
    CHECK(max_ctas_of(least_limited_bytes - 1) == 64);
  }
  Decider limited({.ranks = 2, .link = Link::nvlink, .max_ctas = 8, .max_collective_ctas = 28}, CostModel::shipped());
  CHECK(limited.shape_of(Operation::all_reduce, NCAST_BFLOAT16, NCAST_CODEC_RAW, least_limited_bytes).max_ctas == 8);
}

TEST_CASE("another cost model applies to calls that were decided before") {
  Decider decider({.ranks = 2, .link = Link::nvlink}, CostModel::shipped());
  const CallShape shape = decider.shape_of(Operation::all_gather, NCAST_BFLOAT16, NCAST_CODEC_AUTO, uint64_t{64} << 20);
  CHECK(decider.decide(shape).codec == NCAST_CODEC_WINDOW);
  CostModel slow_codec;
  REQUIRE(CostModel::parse("narrowcast-costs 2 a machine\nall_gather 2 nvlink blocks:raw 1024:7\n"
                           "all_gather 2 nvlink blocks:window 1024:9\n",
                           "the test", &slow_codec) == NCAST_OK);
  decider.set_costs(slow_codec);
  CHECK(decider.decide(shape).codec == NCAST_CODEC_RAW);
  CHECK(decider.costs()->text() == slow_codec.text());
}

}  // namespace
}  // namespace narrowcast::select
