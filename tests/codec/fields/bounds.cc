// Error bounds of `abs` and `rate`, values that are not finite, and edge cases.
#include <cstdio>

#include "codec/fields/blocks.h"
#include "doctest/doctest.h"

namespace narrowcast::tests {
namespace {

// In exact arithmetic: what a subtraction of doubles rounds off is known (Knuth's two-sum).
bool is_within(double value, double decoded, double bound) {
  const double difference = value - decoded, part = difference - value;
  const double rest = (value - (difference - part)) - (decoded + part), sign = difference < 0 ? -1 : 1;
  return std::abs(difference) < bound || (std::abs(difference) == bound && rest * sign <= 0);
}

uint64_t bits_at(const FieldBlock& block, const Bytes& values, uint32_t index) {
  const size_t bytes = ncast_dtype_bytes(block.type.dtype);
  uint64_t bits = 0;
  std::memcpy(&bits, values.data() + index * bytes, bytes);
  return bits;
}

}  // namespace

TEST_CASE("abs restores finite values within the bound as it was written, and the bits of others") {
  Random random(1);
  double worst = 0;
  // A bound is a float32, which may be larger than its decimal; the second is so for all of them but the last two.
  constexpr double bounds[] = {1e-30, 1e-7, 1e-3, 0.3, 0.7, 123.4, 1e28, 0.5, 1};
  for (const double bound : bounds)
    for (const ncast_dtype dtype : field_types)
      for (const char* const pattern : field_patterns)
        for (int round = 0; round < (sanitized ? 1 : 5); ++round) {
          char text[32];
          std::snprintf(text, sizeof text, "abs:bound=%g", bound);
          CAPTURE(text);
          CAPTURE(std::string(ncast_dtype_name(dtype)));
          CAPTURE(std::string(pattern));
          FieldBlock block(dtype, text);
          const double stated = ncast_codec_error_bound(block.type.codec, dtype, 1);
          REQUIRE(stated <= bound);
          REQUIRE(stated > bound * 0.99);
          fill_field(block, pattern, stated, random);
          const Bytes decoded = block.decoded();
          REQUIRE(!decoded.empty());
          for (uint32_t i = 0; i < block.elems(); ++i) {
            CAPTURE(i);
            if (!std::isfinite(block[i])) {
              REQUIRE(bits_at(block, decoded, i) == bits_at(block, block.values, i));
              continue;
            }
            REQUIRE(is_within(block[i], block.at(decoded, i), stated));
            worst = std::max(worst, std::abs(block[i] - block.at(decoded, i)) / stated);
          }
        }
  CHECK(worst == 1);
}

TEST_CASE("abs restores whole numbers exactly if the bound is half of their distance, and decodes no value to -0") {
  for (const ncast_dtype dtype : field_types) {
    FieldBlock block(dtype, "abs:bound=0.5");
    for (uint32_t i = 0; i < block.elems(); ++i) block.set(i, static_cast<double>(i * i % 1001) - 500);
    REQUIRE(block.encoded().size() < block.values.size() / 2);
    REQUIRE(block.decoded() == block.values);
    for (uint32_t i = 0; i < block.elems(); ++i) block.set(i, i % 2 != 0 ? -0.0 : -0.25);
    REQUIRE(block.encoded().size() == 16);
    REQUIRE(block.decoded() == Bytes(block.values.size()));
  }
}

TEST_CASE("abs stores a group that it cannot quantise raw, as one value if it is constant, and no other group") {
  for (const ncast_dtype dtype : field_types) {
    const size_t value_bytes = ncast_dtype_bytes(dtype);
    FieldBlock block(dtype, "abs:bound=0.5");
    const auto size = [&](size_t words) { return (36 + 4 * words + 15) / 16 * 16; };
    // Differences of 1 and -1 take 2 bits and 1.
    for (uint32_t i = 0; i < block.elems(); ++i) block.set(i, i / 32 % 2);
    REQUIRE(block.encoded().size() == size(16 * 2 + 15));
    // The group after the raw one continues the one before it.
    block.set(700, NAN);
    REQUIRE(block.encoded().size() == size(15 * 2 + 14 + 8 * value_bytes));
    for (uint32_t i = 672; i < 704; ++i) block.set(i, 1e20);
    REQUIRE(block.encoded().size() == size(15 * 2 + 14 + value_bytes / 4));
    REQUIRE(block.decoded() == block.values);
    for (uint32_t i = 0; i < block.elems(); ++i) block.set(i, 1e20 * (1 + i));
    REQUIRE(block.encoded() == block.values);
  }
}

TEST_CASE("errors of rate are within its bound in every quad, and not far below it in some") {
  Random random(2);
  for (const char* const text : {"rate:bits=8", "rate:bits=12", "rate:bits=15", "rate", "rate:bits=25", "rate:bits=31"})
    for (const ncast_dtype dtype : field_types) {
      CAPTURE(text);
      CAPTURE(std::string(ncast_dtype_name(dtype)));
      double worst = 0;
      for (int round = 0; round < (sanitized ? 1 : 4); ++round)
        for (const char* const pattern : field_patterns) {
          CAPTURE(std::string(pattern));
          FieldBlock block(dtype, text);
          fill_field(block, pattern, 1, random);
          // Signs of equal magnitudes, which the transform spreads over all integers.
          if (round % 2 != 0 && std::string(pattern) == "constant")
            for (uint32_t i = 0; i < block.elems(); ++i) block.set(i, random.chance(0.5) ? block[i] : -block[i]);
          const Bytes decoded = block.decoded();
          REQUIRE(!decoded.empty());
          for (uint32_t first = 0; first < block.elems(); first += 4) {
            double largest = 0;
            bool is_finite = true;
            for (uint32_t i = first; i < first + 4; ++i) {
              largest = std::max(largest, std::abs(block[i]));
              is_finite = is_finite && std::isfinite(block[i]);
            }
            if (!is_finite) continue;
            const double bound = ncast_codec_error_bound(block.type.codec, dtype, largest);
            for (uint32_t i = first; i < first + 4; ++i) {
              CAPTURE(i);
              // Halves, because the difference may be beyond the largest double.
              const double error = std::abs(block[i] / 2 - block.at(decoded, i) / 2);
              REQUIRE(std::isfinite(block.at(decoded, i)));
              REQUIRE(error <= bound / 2);
              worst = std::max(worst, 2 * error / bound);
            }
          }
        }
      CHECK(worst > 0.05);
    }
}

TEST_CASE("rate keeps NaN and infinities in place, and values beside them within its bound, or makes their quad NaN") {
  for (const char* const text : {"rate:bits=8", "rate:bits=9", "rate:bits=13", "rate", "rate:bits=31"})
    for (const ncast_dtype dtype : field_types) {
      CAPTURE(text);
      FieldBlock block(dtype, text);
      const bool has_room = block.is_single() || std::string(text) != "rate:bits=8";
      for (uint32_t i = 0; i < block.elems(); ++i) block.set(i, std::sin(i) * (i % 7 != 0 ? 1 : 1e-3));
      block.set(0, NAN);
      block.set(5, INFINITY);
      block.set(10, -INFINITY);
      block.set(11, INFINITY);
      // Only the lowest bit says that it is a NaN.
      block.set_bits(15, block.is_single() ? 0xff800001 : 0xfff0000000000001);
      for (uint32_t i = 16; i < 24; ++i) block.set(i, i % 2 != 0 ? block.largest() : -block.largest());
      block.set(23, NAN);
      for (uint32_t i = 24; i < 28; ++i) block.set(i, INFINITY);
      const Bytes decoded = block.decoded();
      for (uint32_t i = 0; i < 28; ++i) {
        CAPTURE(i);
        const double before = block[i], after = block.at(decoded, i);
        double largest = 0;
        for (uint32_t other = i / 4 * 4; other < i / 4 * 4 + 4; ++other)
          if (std::isfinite(block[other])) largest = std::max(largest, std::abs(block[other]));
        if ((!has_room && i / 4 != 4) || std::isnan(before))
          REQUIRE(std::isnan(after));
        else if (std::isinf(before))
          REQUIRE(after == before);
        else
          REQUIRE(std::abs(before / 2 - after / 2) <= ncast_codec_error_bound(block.type.codec, dtype, largest) / 2);
      }
    }
}

TEST_CASE("rate restores zeros, constants of a few bits and straight lines as they are") {
  for (const ncast_dtype dtype : field_types) {
    FieldBlock block(dtype, "rate");
    REQUIRE(block.decoded() == block.values);
    for (uint32_t i = 0; i < block.elems(); ++i) block.set(i, i / 4 % 2 != 0 ? -3 : 5);
    REQUIRE(block.decoded() == block.values);
    for (uint32_t i = 0; i < block.elems(); ++i) block.set(i, 1 + i % 4);
    REQUIRE(block.decoded() == block.values);
  }
}

}  // namespace narrowcast::tests
