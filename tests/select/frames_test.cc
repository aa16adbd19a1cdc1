// How calls between processes on CPUs run, on one host and several.
#include "select/frames.h"

#include <optional>
#include <string>

#include "codec/codec.h"
#include "doctest/doctest.h"
#include "models.h"
#include "select/decision.h"

namespace narrowcast::select {
namespace {

using namespace testing;

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

TEST_CASE("processes run a plan even for a call without values") {
  CallShape shape = gather_of(0);
  CHECK(decide(shape, {CostModel::shipped()}).built_in_plan == nullptr);  // GPUs do nothing
  shape.link = Link::network;
  CHECK(decide(shape, {CostModel::shipped()}).built_in_plan == std::string("all_pairs"));
  shape.has_levels = true;
  CHECK(decide(shape, {CostModel::shipped()}).built_in_plan == std::string("two_level"));
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

}  // namespace
}  // namespace narrowcast::select
