// The context of encoders, with the codec `uniform`, which derives random numbers from it.
#include <cmath>
#include <string>
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
Bytes payloads(const std::vector<float>& values, ncast_codec codec, const codec::BlockContext& context,
               uint32_t flags = 0) {
  Bytes frame(ncast_bound(NCAST_FLOAT32, codec, values.size()));
  size_t wire_bytes = 0;
  REQUIRE(codec::encode_frame(values.data(), NCAST_FLOAT32, values.size(), codec, flags, context, frame.data(),
                              frame.size(), &wire_bytes) == NCAST_OK);
  return {frame.begin() + NCAST_FRAME_HEADER_BYTES, frame.begin() + static_cast<std::ptrdiff_t>(wire_bytes)};
}

std::vector<float> decoded(const std::vector<float>& values, ncast_codec codec, const codec::BlockContext& context) {
  Bytes frame(ncast_bound(NCAST_FLOAT32, codec, values.size()));
  size_t wire_bytes = 0;
  REQUIRE(codec::encode_frame(values.data(), NCAST_FLOAT32, values.size(), codec, 0, context, frame.data(),
                              frame.size(), &wire_bytes) == NCAST_OK);
  std::vector<float> result(values.size());
  REQUIRE(ncast_decode(frame.data(), wire_bytes, 0, result.data(), result.size() * sizeof(float), nullptr) == NCAST_OK);
  return result;
}

std::vector<float> waves(uint64_t elems) {
  std::vector<float> values(elems);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i) * 0.37f);
  return values;
}

}  // namespace

TEST_CASE("a part of the values of a call is encoded as in the whole") {
  const std::vector<float> values = waves(3 * block_elems);
  const ncast_codec codec = parsed("uniform:bits=8,dither=1");
  const Bytes whole = payloads(values, codec, {100, 1, 2, 3});
  const Bytes part = payloads({values.begin() + block_elems, values.end()}, codec, {100 + block_elems, 1, 2, 3});
  CHECK(Bytes(whole.end() - static_cast<std::ptrdiff_t>(part.size()), whole.end()) == part);
}

TEST_CASE("blocks that differ in one member of the context get different random numbers") {
  const std::vector<float> values = waves(block_elems);
  const ncast_codec codec = parsed("uniform:dither=1");
  const Bytes first = payloads(values, codec, {});
  CHECK(payloads(values, codec, {}) == first);
  for (const codec::BlockContext& other :
       {codec::BlockContext{1, 0, 0, 0}, {block_elems, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}})
    CHECK(payloads(values, codec, other) != first);
  // Without a dither that matters, they are the same.
  CHECK(payloads(values, parsed("uniform"), {5, 6, 7, 8}) == payloads(values, parsed("uniform"), {}));
}

TEST_CASE("with a dither of one step the mean of many encodings is the value") {
  std::vector<float> values = waves(block_elems);
  values[0] = 1;  // the largest, so that a step is 1 / 6
  const ncast_codec stochastic = parsed("uniform:bits=4,dither=1"), nearest = parsed("uniform:bits=4");
  constexpr uint32_t calls = 400;
  const auto worst_mean_error = [&](ncast_codec codec) {
    std::vector<double> sums(values.size());
    for (uint32_t call = 0; call < calls; ++call) {
      const std::vector<float> one = decoded(values, codec, {0, call, 0, 0});
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += one[i];
    }
    double worst = 0;
    for (size_t i = 0; i < sums.size(); ++i) worst = std::max(worst, std::abs(sums[i] / calls - values[i]));
    return worst;
  };
  // The standard deviation of a mean is at most half a step / sqrt(calls): 1 / 240.
  CHECK(worst_mean_error(stochastic) < 5.0 / 240);
  CHECK(worst_mean_error(nearest) > 15.0 / 240);
}

}  // namespace narrowcast::tests
