// The context of the blocks of a frame, with a codec that derives random numbers from it.
#include <cmath>
#include <vector>

#include "codec/frame/encode_frame.h"
#include "doctest/doctest.h"
#include "every_codec.h"

namespace narrowcast::tests {
namespace {

constexpr uint64_t block_elems = 1024;

ncast_codec parsed(const char* text) {
  ncast_codec codec = 0;
  REQUIRE(ncast_codec_parse(text, &codec) == NCAST_OK);
  return codec;
}

// The payloads of a frame of float values.
Bytes payloads(const std::vector<float>& values, ncast_codec codec, const codec::BlockContext& context) {
  Bytes frame(ncast_bound(NCAST_FLOAT32, codec, values.size()));
  size_t wire_bytes = 0;
  REQUIRE(codec::encode_frame(values.data(), NCAST_FLOAT32, values.size(), codec, 0, context, frame.data(),
                              frame.size(), &wire_bytes) == NCAST_OK);
  return {frame.begin() + NCAST_FRAME_HEADER_BYTES, frame.begin() + static_cast<std::ptrdiff_t>(wire_bytes)};
}

std::vector<float> waves(uint64_t elems) {
  std::vector<float> values(elems);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i) * 0.37f);
  return values;
}

}  // namespace

TEST_CASE("a part of the values of a call is encoded as in the whole") {
  const std::vector<float> values = waves(3 * block_elems);
  const ncast_codec codec = parsed("int8:rounding=stochastic");
  const Bytes whole = payloads(values, codec, {100, 1, 2, 3});
  CHECK(payloads(values, codec, {}) != whole);
  const Bytes part = payloads({values.begin() + block_elems, values.end()}, codec, {100 + block_elems, 1, 2, 3});
  CHECK(Bytes(whole.end() - static_cast<std::ptrdiff_t>(part.size()), whole.end()) == part);
}

}  // namespace narrowcast::tests
