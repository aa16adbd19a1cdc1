// Small cost models for tests.
#pragma once

#include <string>

#include "doctest/doctest.h"
#include "narrowcast/codec.h"
#include "select/call_shape.h"

namespace narrowcast::select::testing {

const size_t packets = index_of("packets"), raw = index_of("blocks:raw"), window = index_of("blocks:window"),
             nccl = index_of("nccl"), nccl_default = index_of("nccl:default");

constexpr ncast_codec forced_window = NCAST_CODEC_WINDOW | NCAST_CODEC_FORCED;
// A codec with a parameter that is not exact.
inline ncast_codec bounded() {
  ncast_codec codec = 0;
  REQUIRE(ncast_codec_parse("int8:group=64", &codec) == NCAST_OK);
  return codec;
}

const std::string heading = "narrowcast-costs 2 a machine\n";
// Packets win up to 10000 bytes. Window is faster than raw from 100000 bytes on, and by more than 3% before 200000.
const std::string gathers =
    "all_gather 2 nvlink packets 1000:2 10000:10 100000:100\n"
    "all_gather 2 nvlink blocks:raw 1000:10 100000:10 1000000:100\n"
    "all_gather 2 nvlink blocks:window 100000:10 1000000:50\n";

inline CostModel parsed(const std::string& text) {
  CostModel model;
  const ncast_status status = CostModel::parse(text, "the test", &model);
  REQUIRE_MESSAGE(status == NCAST_OK, ncast_last_error());
  return model;
}

// A model of version 1 with these lines.
inline CostModel model_of(const std::string& lines) { return parsed(heading + lines); }

// An all-gather of bfloat16 between two ranks.
inline CallShape gather_of(uint64_t bytes, ncast_codec codec = NCAST_CODEC_AUTO) {
  return {Operation::all_gather, NCAST_BFLOAT16, codec, bytes, 2};
}

}  // namespace narrowcast::select::testing
