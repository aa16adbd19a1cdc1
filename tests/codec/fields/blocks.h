// Blocks of float32 and float64 for the tests of `abs` and `rate`.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

#include "codec/buffers.h"
#include "codec/codec.h"

namespace narrowcast::tests {

inline constexpr ncast_dtype field_types[] = {NCAST_FLOAT32, NCAST_FLOAT64};

class FieldBlock {
 public:
  FieldBlock(ncast_dtype dtype, const std::string& text) {
    ncast_codec codec = 0;
    if (ncast_codec_parse(text.c_str(), &codec) != NCAST_OK) throw std::logic_error(ncast_last_error());
    type = codec::block_type(dtype, codec);
    values.resize(type.block_bytes);
  }
  uint32_t elems() const { return type.block_elems(); }
  bool is_single() const { return type.dtype == NCAST_FLOAT32; }
  // Rounded to the type.
  void set(uint32_t index, double value) {
    const auto single = static_cast<float>(value);
    if (is_single())
      std::memcpy(values.data() + index * sizeof single, &single, sizeof single);
    else
      std::memcpy(values.data() + index * sizeof value, &value, sizeof value);
  }
  void set_bits(uint32_t index, uint64_t bits) {
    const size_t bytes = ncast_dtype_bytes(type.dtype);
    std::memcpy(values.data() + index * bytes, &bits, bytes);
  }
  double operator[](uint32_t index) const { return at(values, index); }
  double at(const Bytes& bytes, uint32_t index) const {
    float single;
    double both;
    if (!is_single()) return std::memcpy(&both, bytes.data() + index * sizeof both, sizeof both), both;
    std::memcpy(&single, bytes.data() + index * sizeof single, sizeof single);
    return double{single};
  }
  // The value `steps` away in the type.
  double neighbour(double value, int steps) const {
    for (; steps != 0; steps += steps > 0 ? -1 : 1) {
      const double to = steps > 0 ? INFINITY : -INFINITY;
      value = is_single() ? double{std::nextafter(static_cast<float>(value), static_cast<float>(to))}
                          : std::nextafter(value, to);
    }
    return value;
  }
  double largest() const { return is_single() ? double{std::numeric_limits<float>::max()} : 0x1.fffffffffffffp1023; }
  double least_normal() const { return is_single() ? 0x1p-126 : 0x1p-1022; }

  const codec::HostCodec& host() const { return codec::host_of(*codec::find_row(type.codec)); }
  Bytes encoded(const codec::BlockCoder& coder) const {
    Bytes payload(type.block_bytes, 0x5c);
    payload.resize(coder.encode(type, {}, values.data(), payload.data()));
    return payload;
  }
  Bytes encoded() const { return encoded(host().reference); }
  // Empty if the payload is not valid.
  Bytes decoded(const codec::BlockCoder& coder, const Bytes& payload) const {
    Bytes result(type.block_bytes);
    const Exact from(payload);
    if (!coder.decode(type, from.data(), payload.size(), result.data())) result.clear();
    return result;
  }
  Bytes decoded() const { return decoded(host().reference, encoded()); }

  codec::BlockType type;
  Bytes values;
};

inline constexpr const char* field_patterns[] = {"waves",       "noise",    "ramps",  "constant", "zeros",
                                                 "ties",        "outliers", "powers", "tiny",     "subnormal",
                                                 "far from it", "huge",     "mask",   "any bits", "few kinds"};

// unit: what values are compared with: the error of `abs`, or 1.
inline void fill_field(FieldBlock& block, const std::string& pattern, double unit, Random& random) {
  const auto uniform = [&] { return static_cast<double>(random.bits() >> 11) * 0x1p-52 - 1; };
  const double amplitude = unit * std::ldexp(1, random.below(20)), phase = uniform() * 9, slope = uniform();
  const bool is_masked = pattern == "mask";
  const double fill = random.chance(0.5) ? NAN : 1e20;
  for (uint32_t i = 0; i < block.elems(); ++i) {
    double value = amplitude * std::sin(i * 0.013 + phase) + unit * uniform();
    if (pattern == "noise") value = amplitude * uniform();
    if (pattern == "ramps") value = amplitude * slope * i;
    if (pattern == "constant") value = amplitude * slope;
    if (pattern == "zeros") value = random.chance(0.5) ? 0.0 : -0.0;
    // Halves of steps, and their neighbours.
    if (pattern == "ties")
      value = block.neighbour(unit * (random.below(4001) - 2000), random.chance(0.6) ? 0 : random.below(5) - 2);
    if (pattern == "outliers" && i % 97 == 0) value *= 1e6;
    if (pattern == "powers")
      value = block.neighbour(std::ldexp(random.chance(0.5) ? unit : -unit, random.below(24)), random.below(3) - 1);
    if (pattern == "tiny") value = unit * uniform() * (1 + 1e-6);
    if (pattern == "subnormal") value = block.least_normal() * uniform();
    if (pattern == "far from it") value = amplitude * 1e6 + unit * i;
    if (pattern == "huge") value = block.largest() * uniform();
    if (is_masked && (i / 50 + i / 300) % 3 == 0) value = fill;
    if (pattern == "few kinds" && random.chance(0.02))
      value = random.chance(0.4) ? NAN : random.chance(0.5) ? INFINITY : -INFINITY;
    if (pattern == "any bits")
      block.set_bits(i, random.bits());
    else
      block.set(i, value);
  }
}

}  // namespace narrowcast::tests
