// Compares the conversions with the definitions of the formats.
#include "executor/host/convert.h"

#include "doctest/doctest.h"
#include "support/values.h"

namespace narrowcast::testing {
namespace {

using executor::host::from_float;
using executor::host::to_float;

float float_of_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <typename Narrow>
int count_wrong_decodings(const Format& format) {
  int wrong = 0;
  for (uint32_t bits = 0; bits < 2 * format.sign_bit(); ++bits) {
    const float got = to_float(Narrow{static_cast<typename Narrow::Bits>(bits)});
    const double expected = format.value(bits);
    const bool same = std::isnan(expected) ? std::isnan(got) : static_cast<double>(got) == expected;
    const bool same_sign = std::signbit(got) == ((bits & format.sign_bit()) != 0);
    wrong += !same || !same_sign;
  }
  return wrong;
}

template <typename Narrow>
bool rounds_like_definition(const Format& format, float value) {
  const uint32_t got = from_float<Narrow>(value).bits;
  if (std::isnan(value))
    return std::isnan(format.value(got)) && ((got & format.sign_bit()) != 0) == std::signbit(value);
  return got == format.round(value);
}

// Tries every number of the format, every midpoint between two neighbours, the floats next to each, and random floats.
template <typename Narrow>
int count_wrong_roundings(const Format& format) {
  int wrong = 0;
  const auto try_around = [&](float value) {
    for (const float sign : {1.0f, -1.0f}) {
      for (const float target : {0.0f, std::numeric_limits<float>::infinity()}) {
        wrong += !rounds_like_definition<Narrow>(format, sign * std::nextafter(value, target));
      }
      wrong += !rounds_like_definition<Narrow>(format, sign * value);
    }
  };
  for (uint32_t bits = 0; bits <= format.largest_finite(); ++bits) {
    const double here = format.value(bits);
    // The neighbour of the largest number is the number that one more step would reach.
    const double next =
        bits < format.largest_finite() ? format.value(bits + 1) : here + (here - format.value(bits - 1));
    try_around(static_cast<float>(here));
    try_around(static_cast<float>((here + next) / 2));
    try_around(static_cast<float>(next));
  }
  std::mt19937 random(1);
  for (int i = 0; i < 2000000; ++i) wrong += !rounds_like_definition<Narrow>(format, float_of_bits(random()));
  for (const uint32_t bits : {0x7f800000u, 0x7f800001u, 0x7fc00000u, 0xff800001u, 0x7fffffffu, 1u, 0x007fffffu}) {
    wrong += !rounds_like_definition<Narrow>(format, float_of_bits(bits));
    wrong += !rounds_like_definition<Narrow>(format, float_of_bits(bits | 0x80000000u));
  }
  return wrong;
}

template <typename Narrow>
int count_changed_by_round_trip(const Format& format) {
  int changed = 0;
  for (uint32_t bits = 0; bits < 2 * format.sign_bit(); ++bits) {
    if (std::isnan(format.value(bits))) continue;
    changed += from_float<Narrow>(to_float(Narrow{static_cast<typename Narrow::Bits>(bits)})).bits != bits;
  }
  return changed;
}

template <typename Narrow>
void check_format(const Format& format) {
  CHECK(count_wrong_decodings<Narrow>(format) == 0);
  CHECK(count_wrong_roundings<Narrow>(format) == 0);
  CHECK(count_changed_by_round_trip<Narrow>(format) == 0);
}

TEST_CASE("narrow floating-point types are converted as their formats define") {
  check_format<executor::host::Float16>(float16_format);
  check_format<executor::host::BFloat16>(bfloat16_format);
  check_format<executor::host::Float8E4M3>(float8_e4m3_format);
  check_format<executor::host::Float8E5M2>(float8_e5m2_format);
}

TEST_CASE("values too large for float8 become NaN in e4m3 and infinity in e5m2") {
  CHECK(from_float<executor::host::Float8E4M3>(448.0f).bits == 0x7e);
  CHECK(from_float<executor::host::Float8E4M3>(464.0f).bits == 0x7e);  // a tie, to even
  CHECK(from_float<executor::host::Float8E4M3>(465.0f).bits == 0x7f);
  CHECK(from_float<executor::host::Float8E4M3>(-1e30f).bits == 0xff);
  CHECK(from_float<executor::host::Float8E5M2>(57344.0f).bits == 0x7b);
  CHECK(from_float<executor::host::Float8E5M2>(1e30f).bits == 0x7c);
}

TEST_CASE("widening keeps the payload of a NaN") {
  CHECK(std::bit_cast<uint32_t>(to_float(executor::host::BFloat16{0xffa5})) == 0xffa50000u);
  CHECK(std::bit_cast<uint32_t>(to_float(executor::host::Float16{0x7c01})) == 0x7f802000u);
}

}  // namespace
}  // namespace narrowcast::testing
