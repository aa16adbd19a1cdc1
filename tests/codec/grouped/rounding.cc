// How the grouped codecs round: to the nearest code, or at random so that the mean is the value.
#include <algorithm>
#include <array>
#include <vector>

#include "codec/grouped/blocks.h"
#include "codec/grouped/random.h"
#include "doctest/doctest.h"

namespace narrowcast::tests {
namespace {

// All magnitudes of a small float, from its definition.
std::vector<double> magnitudes_of(int exponent_bits, int mantissa_bits, int bias, double largest) {
  std::vector<double> values;
  for (int exponent = 0; exponent < 1 << exponent_bits; ++exponent)
    for (int mantissa = 0; mantissa < 1 << mantissa_bits; ++mantissa) {
      const double fraction = std::ldexp(mantissa, -mantissa_bits);
      const double value = exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
      if (value <= largest) values.push_back(value);
    }
  return values;
}

// Sums of errors over calls, in standard deviations: the largest, and the mean of their squares.
struct Bias {
  double largest = 0, mean_square = 0;
};
Bias bias_of(ncast_codec codec, GroupedBlock& block, uint32_t calls, bool same_call) {
  struct Sample {
    double sum = 0, squares = 0, least = INFINITY, most = -INFINITY;
  };
  std::vector<Sample> samples(block.elems());
  for (uint32_t call = 0; call < calls; ++call) {
    const Bytes decoded = block.decoded(codec, block.encoded(codec, {0, same_call ? 0 : call, 1, 2}));
    for (uint32_t i = 0; i < block.elems(); ++i) {
      const double error = double{block.at(decoded, i)} - double{block[i]};
      samples[i].sum += error;
      samples[i].squares += error * error;
      samples[i].least = std::min(samples[i].least, error);
      samples[i].most = std::max(samples[i].most, error);
    }
  }
  const bool is_rotated = codec::grouped::coding_of(codec::explicit_parameters(codec)).rotate > 1;
  Bias bias;
  double counted = 0;
  for (const Sample& sample : samples) {
    // A value becomes one of two, unless it is rotated. Values close to one of them say too little.
    const double variance = is_rotated ? sample.squares : -sample.least * sample.most * calls;
    const double step = sample.most - sample.least;
    if (step == 0 || variance < 10 * step * step) continue;
    bias.largest = std::max(bias.largest, std::abs(sample.sum) / std::sqrt(variance));
    bias.mean_square += sample.sum * sample.sum / variance;
    ++counted;
  }
  bias.mean_square /= counted;
  return bias;
}

}  // namespace

TEST_CASE("elements of OCP and NVIDIA formats are the nearest of their format, ties to even") {
  struct Format {
    const char* codec;
    std::vector<double> magnitudes;
    int largest_exponent;
  };
  const std::vector<Format> formats = {{"mxfp8", magnitudes_of(4, 3, 7, 448), 8},
                                       {"mxfp8:element=e5m2", magnitudes_of(5, 2, 15, 57344), 15},
                                       {"mxfp6", magnitudes_of(2, 3, 1, 7.5), 2},
                                       {"mxfp6:element=e3m2", magnitudes_of(3, 2, 3, 28), 4},
                                       {"mxfp4", magnitudes_of(2, 1, 1, 6), 2}};
  for (const Format& format : formats) {
    CAPTURE(format.codec);
    for (uint32_t first = 0; first < 32768; first += 1024) {
      GroupedBlock block(NCAST_BFLOAT16);
      for (uint32_t i = 0; i < 2048; ++i) {
        block.set_bits(i, (first + i / 2) | i % 2 << 15);
        if (!std::isfinite(block[i])) block.set_bits(i, 0x7f7f);
      }
      const Bytes decoded = block.decoded(grouped_codec(format.codec));
      for (uint32_t group = 0; group < 2048; group += 32) {
        double largest = 0;
        for (uint32_t i = group; i < group + 32; ++i) largest = std::max(largest, std::abs(double{block[i]}));
        const int exponent = largest == 0 ? -127 : std::max(std::ilogb(largest) - format.largest_exponent, -127);
        for (uint32_t i = group; i < group + 32; ++i) {
          const double wanted = std::min(std::ldexp(std::abs(double{block[i]}), -exponent), format.magnitudes.back());
          const auto& all = format.magnitudes;
          const auto above = std::lower_bound(all.begin(), all.end(), wanted);
          auto nearest = above;
          if (above != all.begin() && *above != wanted) {
            const double up = *above - wanted, down = wanted - *(above - 1);
            if (down < up || (down == up && (above - all.begin()) % 2 != 0)) nearest = above - 1;
          }
          const double expected = std::copysign(std::ldexp(*nearest, exponent), block[i]);
          // Rounded to bfloat16, which all but subnormal values are.
          CAPTURE(i);
          REQUIRE(static_cast<double>(block.at(decoded, i)) ==
                  static_cast<double>(codec::grouped::value_of(
                      NCAST_BFLOAT16, codec::grouped::bits_of_value(NCAST_BFLOAT16, static_cast<float>(expected)))));
        }
      }
    }
  }
}

TEST_CASE("the random numbers are those of Philox4x32-10") {
  // The known answers of Random123.
  using codec::grouped::philox;
  const auto zero = philox({{0, 0, 0, 0}}, 0, 0);
  CHECK(std::to_array(zero.word) == std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const auto pi = philox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0);
  CHECK(std::to_array(pi.word) == std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("stochastic rounding has the value as its mean; nearest and repeated random numbers do not") {
  constexpr uint32_t calls = 400;
  // 1 024 means of 400 draws each: the largest deviates by 4.5 sigma at most, and the mean square is near 1.
  const auto is_unbiased = [](const Bias& bias) { return bias.largest < 5 && std::abs(bias.mean_square - 1) < 0.25; };
  for (const char* name : {"int8", "int8a:group=32", "int6", "int4", "int4:rotate=32", "int2", "e4m3", "e5m2", "mxfp6",
                           "mxfp4", "nvfp4"}) {
    CAPTURE(name);
    Random random(7);
    GroupedBlock block(NCAST_FLOAT32);
    // No scale cuts off 1.5, the largest of each group.
    for (uint32_t i = 0; i < block.elems(); ++i)
      block.set(i, i % 16 == 0 ? 1.5f : static_cast<float>(random.bits() >> 40) * 0x1p-23f - 1);
    const std::string text = name + std::string(std::string(name).find(':') == std::string::npos ? ":" : ",");
    const ncast_codec stochastic = grouped_codec(text + "rounding=stochastic");
    const Bias bias = bias_of(stochastic, block, calls, false);
    CAPTURE(bias.largest);
    CAPTURE(bias.mean_square);
    CHECK(is_unbiased(bias));
    CHECK_FALSE(is_unbiased(bias_of(grouped_codec(name), block, 50, false)));
    CHECK_FALSE(is_unbiased(bias_of(stochastic, block, 50, true)));
  }
}

TEST_CASE("random numbers depend on element, call, rank, stage and seed, and on nothing else") {
  GroupedBlock block(NCAST_BFLOAT16);
  for (uint32_t i = 0; i < block.elems(); ++i) block.set(i, std::sin(static_cast<float>(i) * 0.37f));
  const ncast_codec codec = grouped_codec("int4:rounding=stochastic");
  const Bytes first = block.encoded(codec);
  CHECK(block.encoded(codec) == first);
  for (const codec::BlockContext& other :
       {codec::BlockContext{8, 0, 0, 0}, {uint64_t{1} << 40, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}})
    CHECK(block.encoded(codec, other) != first);
  CHECK(block.encoded(grouped_codec("int4:rounding=stochastic,seed=2")) != first);
  CHECK(block.encoded(grouped_codec("int4"), {1, 2, 3, 4}) == block.encoded(grouped_codec("int4:seed=9")));
}

}  // namespace narrowcast::tests
