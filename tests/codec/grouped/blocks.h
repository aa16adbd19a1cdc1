// Blocks of values for the tests of the grouped codecs, and their variants.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "codec/buffers.h"
#include "codec/codec.h"
#include "codec/grouped/format.h"
#include "codec/grouped/small_floats.h"
#include "support/codec_table.h"

namespace narrowcast::tests {

inline constexpr ncast_dtype grouped_types[] = {NCAST_BFLOAT16, NCAST_FLOAT16, NCAST_FLOAT32};

inline ncast_codec grouped_codec(const std::string& text) {
  ncast_codec codec = 0;
  if (ncast_codec_parse(text.c_str(), &codec) != NCAST_OK) throw std::logic_error(ncast_last_error());
  return codec;
}

// All of the family with their variants, and some more.
inline std::vector<ncast_codec> grouped_codecs() {
  std::vector<ncast_codec> codecs;
  for (const ncast_codec codec : all_variants())
    if (codec::id_of(codec) >= NCAST_CODEC_INT8 && codec::id_of(codec) <= NCAST_CODEC_NVFP4) codecs.push_back(codec);
  for (const char* text :
       {"int4:group=128,rotate=128", "int8:group=64,rotate=2", "int6:group=128,rotate=16,rounding=stochastic",
        "int2:rotate=64", "mxfp8:element=e5m2,rounding=stochastic", "mxfp6:element=e3m2,rounding=stochastic"})
    codecs.push_back(grouped_codec(text));
  return codecs;
}

// A block of a type, from the bits of its values.
class GroupedBlock {
 public:
  explicit GroupedBlock(ncast_dtype dtype) : type(codec::block_type(dtype, NCAST_CODEC_INT8)) {
    values.resize(type.block_bytes);
  }
  uint32_t elems() const { return type.block_elems(); }
  void set_bits(uint32_t index, uint32_t bits) {
    const size_t bytes = ncast_dtype_bytes(type.dtype);
    std::memcpy(values.data() + index * bytes, &bits, bytes);
  }
  void set(uint32_t index, float value) {
    const float most = codec::grouped::largest_value(type.dtype);
    if (std::isfinite(value)) value = std::min(std::max(value, -most), most);
    set_bits(index, codec::grouped::bits_of_value(type.dtype, value));
  }
  float operator[](uint32_t index) const { return at(values, index); }
  float at(const Bytes& bytes, uint32_t index) const {
    const size_t value_bytes = ncast_dtype_bytes(type.dtype);
    uint32_t bits = 0;
    std::memcpy(&bits, bytes.data() + index * value_bytes, value_bytes);
    return codec::grouped::value_of(type.dtype, bits);
  }

  Bytes encoded(ncast_codec codec, const codec::BlockContext& context = {}) {
    type.codec = codec::explicit_parameters(codec);
    Bytes payload(type.block_bytes);
    payload.resize(host().reference.encode(type, context, values.data(), payload.data()));
    return payload;
  }
  // Empty if the payload is not valid.
  Bytes decoded(ncast_codec codec, const Bytes& payload) {
    type.codec = codec::explicit_parameters(codec);
    Bytes result(type.block_bytes);
    if (!host().reference.decode(type, payload.data(), payload.size(), result.data())) result.clear();
    return result;
  }
  Bytes decoded(ncast_codec codec) { return decoded(codec, encoded(codec)); }

  static const codec::HostCodec& host() { return codec::host_of(*codec::find_row(NCAST_CODEC_INT8)); }

  codec::BlockType type;
  Bytes values;
};

// Values of the named kinds. `random` decides signs, places and exponents.
inline constexpr const char* grouped_patterns[] = {
    "normal", "any bits",      "finite bits", "one outlier", "constant",  "zeros",  "subnormal", "largest",
    "ties",   "powers of two", "infinities",  "NaN",         "all kinds", "offset", "huge"};

inline GroupedBlock grouped_block(ncast_dtype dtype, size_t pattern, Random& random) {
  GroupedBlock block(dtype);
  const std::string name = grouped_patterns[pattern];
  const int width = 8 * static_cast<int>(ncast_dtype_bytes(dtype));
  const float most = codec::grouped::largest_value(dtype);
  const auto uniform = [&] { return static_cast<float>(random.bits() >> 40) * 0x1p-23f - 1; };
  const auto bell = [&] { return uniform() + uniform() + uniform(); };
  const float scale =
      std::ldexp(1.0f, random.below(dtype == NCAST_FLOAT16 ? 24 : 200) - (dtype == NCAST_FLOAT16 ? 12 : 100));
  const float constant = bell() * scale;
  for (uint32_t i = 0; i < block.elems(); ++i) {
    if (name == "any bits" || name == "finite bits") {
      block.set_bits(i, static_cast<uint32_t>(random.bits() >> (64 - width)));
      while (name == "finite bits" && !std::isfinite(block[i]))
        block.set_bits(i, static_cast<uint32_t>(random.bits() >> (64 - width)));
      continue;
    }
    float value = bell() * scale;
    if (name == "one outlier" && i % 67 == 0) value *= 1000;
    if (name == "constant") value = constant;
    if (name == "zeros") value = random.chance(0.5) ? 0.0f : -0.0f;
    if (name == "subnormal") value = bell() * (dtype == NCAST_FLOAT16 ? 0x1p-15f : 0x1p-127f);
    if (name == "largest") value = random.chance(0.5) ? most : -most;
    // Halves of the steps of integers whose largest value is 127, 31, 7 or 1.
    if (name == "ties") value = i % 16 == 0 ? 127.0f : static_cast<float>(random.below(509) - 254) / 2;
    if (name == "powers of two") {
      value = std::ldexp(random.chance(0.5) ? 1.0f : -1.0f, random.below(20));
      if (random.chance(0.6)) value = std::nextafter(value, random.chance(0.5) ? 0.0f : 2 * value);
    }
    if (name == "infinities" && random.chance(0.01)) value = random.chance(0.5) ? INFINITY : -INFINITY;
    if (name == "NaN" && random.chance(0.01)) value = NAN;
    if (name == "all kinds" && random.chance(0.02))
      value = random.chance(0.4) ? NAN : random.chance(0.5) ? INFINITY : -INFINITY;
    if (name == "offset") value = constant * 1000 + bell() * scale;
    if (name == "huge") value = bell() * (most / 3);
    block.set(i, value);
  }
  return block;
}

}  // namespace narrowcast::tests
