// Error bounds of the grouped codecs, values that are not finite, and edge cases.
#include <algorithm>
#include <set>

#include "codec/grouped/blocks.h"
#include "doctest/doctest.h"

namespace narrowcast::tests {
namespace {

using codec::grouped::Coding;
using codec::grouped::Scale;

Coding coding_of(ncast_codec codec) { return codec::grouped::coding_of(codec::explicit_parameters(codec)); }

// The largest error of a value, as a part of the bound of its group (nvfp4: of its block).
double worst_error(GroupedBlock& block, ncast_codec codec) {
  const Coding coding = coding_of(codec);
  const Bytes decoded = block.decoded(codec);
  REQUIRE(!decoded.empty());
  const uint32_t unit = coding.scale == Scale::e4m3 ? block.elems() : coding.unit();
  double worst = 0;
  for (uint32_t first = 0; first < block.elems(); first += unit) {
    double largest = 0;
    for (uint32_t i = first; i < first + unit; ++i) largest = std::max(largest, std::abs(double{block[i]}));
    const double bound = ncast_codec_error_bound(codec, block.type.dtype, largest);
    for (uint32_t i = first; i < first + unit; ++i)
      worst = std::max(worst, std::abs(double{block.at(decoded, i)} - double{block[i]}) / bound);
  }
  return worst;
}

}  // namespace

TEST_CASE("errors of the grouped codecs are within their bounds, of all finite values of 16 bits and in hard groups") {
  Random random(1);
  for (const ncast_codec codec : grouped_codecs()) {
    CAPTURE(codec::describe(codec));
    double worst = 0;
    for (const ncast_dtype dtype : grouped_types) {
      CAPTURE(std::string(ncast_dtype_name(dtype)));
      for (const std::string name : grouped_patterns) {
        if (name == "infinities" || name == "NaN" || name == "all kinds" || name == "any bits") continue;
        CAPTURE(name);
        const auto pattern = static_cast<size_t>(
            std::find(std::begin(grouped_patterns), std::end(grouped_patterns), name) - std::begin(grouped_patterns));
        GroupedBlock block = grouped_block(dtype, pattern, random);
        const double error = worst_error(block, codec);
        REQUIRE(error <= 1);
        worst = std::max(worst, error);
      }
      if (dtype == NCAST_FLOAT32) continue;
      for (uint32_t first = 0; first < 65536; first += 2048) {
        CAPTURE(first);
        GroupedBlock block(dtype);
        // Neighbouring values, or, in the blocks of negative ones, values far from each other.
        for (uint32_t i = 0; i < 2048; ++i) {
          block.set_bits(i, first < 32768 ? first + i : 32768 + (first + i) * 2053 % 32768);
          if (!std::isfinite(block[i])) block.set_bits(i, 0);
        }
        const double error = worst_error(block, codec);
        REQUIRE(error <= 1);
        worst = std::max(worst, error);
      }
    }
    // Bounds say something: some error is more than a third of it. Those of rotated groups are for the worst case.
    CHECK(worst > (coding_of(codec).rotate > 1 ? 0.003 : 1.0 / 3));
  }
}

TEST_CASE("grouped codecs keep NaN and infinity in place, or make the values of the group NaN as their format says") {
  for (const ncast_codec codec : grouped_codecs()) {
    const Coding coding = coding_of(codec);
    CAPTURE(codec::describe(codec));
    const bool poisons = coding.scale == Scale::e8m0 || coding.scale == Scale::e4m3;
    for (const ncast_dtype dtype : grouped_types) {
      GroupedBlock block(dtype);
      for (uint32_t i = 0; i < block.elems(); ++i) block.set(i, std::sin(static_cast<float>(i)));
      // Groups 0 to 4 of 128 values each.
      const auto place = [](uint32_t group, uint32_t within) { return 128 * group + within; };
      block.set(place(0, 3), NAN);
      block.set(place(0, 17), -NAN);
      block.set(place(1, 5), INFINITY);
      block.set(place(2, 0), -INFINITY);
      block.set(place(3, 1), INFINITY);
      block.set(place(3, 2), -INFINITY);
      block.set(place(4, 1), NAN);
      block.set(place(4, 2), INFINITY);
      for (uint32_t i = 0; i < 128; ++i) block.set(place(5, i), -INFINITY);
      const Bytes decoded = block.decoded(codec);
      REQUIRE(!decoded.empty());
      for (uint32_t first = 0; first < block.elems(); first += coding.group) {
        std::set<float> infinities;
        bool has_nan = false, is_finite = true;
        double largest = 0;
        for (uint32_t i = first; i < first + coding.group; ++i) {
          has_nan |= std::isnan(block[i]);
          if (std::isinf(block[i])) infinities.insert(block[i]);
          is_finite = is_finite && std::isfinite(block[i]);
          if (std::isfinite(block[i])) largest = std::max(largest, std::abs(double{block[i]}));
        }
        // One code of integers stands for all that is not finite, and e4m3 has no further code.
        const bool infinities_are_kept =
            !poisons && (coding.element == codec::grouped::Element::e5m2 ||
                         (!has_nan && (infinities.size() < 2 || coding.scale == Scale::float32)));
        const double bound = ncast_codec_error_bound(codec, dtype, std::max(largest, 1.0));
        for (uint32_t i = first; i < first + coding.group; ++i) {
          CAPTURE(i);
          const float before = block[i], after = block.at(decoded, i);
          if (poisons && !is_finite)
            REQUIRE(std::isnan(after));
          else if (std::isfinite(before))
            REQUIRE(std::abs(double{after} - double{before}) <= bound);
          else if (std::isinf(before) && infinities_are_kept)
            REQUIRE(after == before);
          else
            REQUIRE(std::isnan(after));
        }
      }
    }
  }
}

TEST_CASE("grouped codecs decode zeros to zeros, and int8a decodes constant groups exactly") {
  Random random(2);
  for (const ncast_dtype dtype : grouped_types) {
    GroupedBlock block(dtype);
    for (const ncast_codec codec : grouped_codecs()) {
      CAPTURE(codec::describe(codec));
      const Bytes decoded = block.decoded(codec);
      REQUIRE(decoded == block.values);
    }
    for (int round = 0; round < 200; ++round) {
      const auto bits = static_cast<uint32_t>(random.bits());
      for (uint32_t i = 0; i < block.elems(); ++i) block.set_bits(i, bits);
      if (!std::isfinite(block[0]) || block[0] == 0) continue;
      REQUIRE(block.decoded(grouped_codec("int8a")) == block.values);
      REQUIRE(block.decoded(grouped_codec("int8a:group=32,rounding=stochastic")) == block.values);
    }
  }
}

TEST_CASE("the largest value of a group of integers is not cut off, and its decoded value is finite") {
  for (const ncast_dtype dtype : grouped_types) {
    const float most = codec::grouped::largest_value(dtype);
    for (const char* text : {"int8", "int6", "int4", "int2", "e4m3", "e5m2", "int8a", "int4:rotate=32"}) {
      CAPTURE(text);
      GroupedBlock block(dtype);
      for (uint32_t i = 0; i < block.elems(); ++i) block.set(i, i % 32 == 5 ? most : i % 32 == 6 ? -most : 0);
      const Bytes decoded = block.decoded(grouped_codec(text));
      for (uint32_t i = 5; i < block.elems(); i += 32) {
        REQUIRE(block.at(decoded, i) >= most * (1 - 0x1p-7f));
        REQUIRE(block.at(decoded, i + 1) <= -most * (1 - 0x1p-7f));
        REQUIRE(std::isfinite(block.at(decoded, i)));
      }
    }
  }
}

}  // namespace narrowcast::tests
