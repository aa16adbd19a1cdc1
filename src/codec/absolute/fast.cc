// Loops over groups, of which compilers vectorise those over values.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "codec/absolute/block.h"
#include "codec/absolute/format.h"

namespace narrowcast::codec::absolute {
namespace {

template <typename Float>
using BitsOf = std::conditional_t<sizeof(Float) == 4, uint32_t, uint64_t>;
// Adding it rounds a Float to an integer, and leaves the integer in the low bits of the sum.
template <typename Float>
constexpr Float to_integer = sizeof(Float) == 4 ? Float(0x1.8p23) : Float(0x1.8p52);

template <typename Float>
uint32_t integer_in(Float value) {
  const auto bits = std::bit_cast<BitsOf<Float>>(value + to_integer<Float>);
  return static_cast<uint32_t>(bits - std::bit_cast<BitsOf<Float>>(to_integer<Float>));
}

// Returns false if a value cannot be quantised within the error; the integers are then undefined.
template <typename Float>
bool quantise(const uint8_t* values, Float step, Float error, uint32_t* integers) {
  std::array<Float, group_elems> x;
  std::memcpy(x.data(), values, sizeof x);
  const Float inverse = 1 / step;
  // Conditions are bits, because compilers do not vectorise branches around sums of floats.
  using Bits = BitsOf<Float>;
  Bits outside = 0;
  for (uint32_t i = 0; i < group_elems; ++i) {
    const Float quotient = x[i] * inverse;
    Float nearest = (quotient + to_integer<Float>)-to_integer<Float>;
    const Float excess = x[i] - nearest * step;
    const Bits moves = 0 - Bits{std::abs(excess) > error}, sign = std::bit_cast<Bits>(std::copysign(Float(1), excess));
    nearest += std::bit_cast<Float>(sign & moves);
    outside |= Bits{!(std::abs(quotient) <= most_quotient<Float>)};
    outside |= Bits{!(std::abs(x[i] - nearest * step) <= error)};
    integers[i] = integer_in(nearest);
  }
  return outside == 0;
}

// Codes of `width` bits each, from the lowest bit of the first byte; 4 * width bytes.
void pack_codes(const uint32_t* codes, uint32_t width, uint8_t* to) {
  uint64_t pending = 0;
  for (uint32_t i = 0, count = 0; i < group_elems; ++i) {
    pending |= uint64_t{codes[i]} << count;
    count += width;
    if (count < 32) continue;
    const auto word = static_cast<uint32_t>(pending);
    std::memcpy(to, &word, sizeof word);
    to += sizeof word;
    pending >>= 32;
    count -= 32;
  }
}
void unpack_codes(const uint8_t* from, uint32_t width, uint32_t* codes) {
  std::array<uint8_t, 4 * most_width + 8> bytes;  // beyond them, an unaligned load may read
  std::memcpy(bytes.data(), from, size_t{4} * width);
  std::memset(bytes.data() + size_t{4} * width, 0, 8);
  const uint64_t mask = (uint64_t{1} << width) - 1;
  for (uint32_t i = 0; i < group_elems; ++i) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i * width / 8, sizeof word);
    codes[i] = static_cast<uint32_t>(word >> i * width % 8 & mask);
  }
}

template <typename Float>
size_t encode_block(const BlockType& type, const uint8_t* values, uint8_t* payload) {
  constexpr size_t group_bytes = group_elems * sizeof(Float);
  const Step step(type.codec);
  std::array<uint8_t, groups> modes;
  std::array<uint32_t, block_elems> codes;
  uint32_t start = 0, last = 0, words = 0;
  bool is_started = false;
  for (uint32_t group = 0; group < groups; ++group) {
    const uint8_t* const of_group = values + group * group_bytes;
    uint32_t mode = raw_mode;
    std::array<uint32_t, group_elems + 1> integers;
    if (quantise<Float>(of_group, step.step(), step.error, integers.data() + 1)) {
      if (!is_started) start = last = integers[1];
      is_started = true;
      integers[0] = last;
      uint32_t all = 0;
      for (uint32_t i = 0; i < group_elems; ++i) {
        const uint32_t difference = integers[i + 1] - integers[i];
        const uint32_t code = difference << 1 ^ (0 - (difference >> 31));
        codes[group * group_elems + i] = code;
        all |= code;
      }
      last = integers[group_elems];
      mode = static_cast<uint32_t>(std::bit_width(all));
    } else if (std::memcmp(of_group, of_group + sizeof(Float), group_bytes - sizeof(Float)) == 0) {
      mode = repeated_mode;
    }
    modes[group] = static_cast<uint8_t>(mode);
    words += words_of(mode, sizeof(Float));
  }
  const uint32_t bytes = payload_bytes(words);
  if (bytes >= type.block_bytes) {
    std::memcpy(payload, values, type.block_bytes);
    return type.block_bytes;
  }
  std::memset(payload + bytes - 16, 0, 16);
  std::memcpy(payload, &start, sizeof start);
  if (words == 0) return bytes;
  std::memcpy(payload + modes_offset, modes.data(), groups);
  uint8_t* to = payload + words_offset;
  for (uint32_t group = 0; group < groups; ++group) {
    const size_t size = size_t{4} * words_of(modes[group], sizeof(Float));
    if (modes[group] > most_width)
      std::memcpy(to, values + group * group_bytes, size);
    else if (modes[group] != 0)
      pack_codes(codes.data() + group * group_elems, modes[group], to);
    to += size;
  }
  return bytes;
}

template <typename Float>
bool decode_block(const BlockType& type, const uint8_t* payload, size_t bytes, uint8_t* values) {
  constexpr size_t group_bytes = group_elems * sizeof(Float);
  if (bytes == type.block_bytes) {
    std::memcpy(values, payload, bytes);
    return true;
  }
  std::array<uint8_t, groups> modes = {};
  uint32_t words = 0;
  if (bytes != constant_payload_bytes) {
    if (bytes < words_offset) return false;
    std::memcpy(modes.data(), payload + modes_offset, groups);
    for (const uint8_t mode : modes) {
      if (!is_mode(mode)) return false;
      words += words_of(mode, sizeof(Float));
    }
    if (bytes != (words_offset + 4 * words + 15) / 16 * 16) return false;
  }
  const Float step = Step(type.codec).step();
  uint32_t last;
  std::memcpy(&last, payload, sizeof last);
  const uint8_t* from = payload + words_offset;
  for (uint32_t group = 0; group < groups; ++group) {
    uint8_t* const to = values + group * group_bytes;
    const uint32_t mode = modes[group];
    if (mode == raw_mode) {
      std::memcpy(to, from, group_bytes);
    } else if (mode == repeated_mode) {
      for (uint32_t i = 0; i < group_elems; ++i) std::memcpy(to + i * sizeof(Float), from, sizeof(Float));
    } else {
      std::array<uint32_t, group_elems> integers = {};
      if (mode != 0) unpack_codes(from, mode, integers.data());
      for (uint32_t& integer : integers) integer = last += integer >> 1 ^ (0 - (integer & 1));
      std::array<Float, group_elems> x;
      for (uint32_t i = 0; i < group_elems; ++i) x[i] = static_cast<Float>(static_cast<int32_t>(integers[i])) * step;
      std::memcpy(to, x.data(), sizeof x);
    }
    from += size_t{4} * words_of(mode, sizeof(Float));
  }
  return true;
}

}  // namespace

const BlockCoder fast{[](const BlockType& type, const BlockContext&, const uint8_t* values, uint8_t* payload) {
                        return type.dtype == NCAST_FLOAT32 ? encode_block<float>(type, values, payload)
                                                           : encode_block<double>(type, values, payload);
                      },
                      [](const BlockType& type, const uint8_t* payload, size_t payload_bytes, uint8_t* values) {
                        return type.dtype == NCAST_FLOAT32 ? decode_block<float>(type, payload, payload_bytes, values)
                                                           : decode_block<double>(type, payload, payload_bytes, values);
                      }};

}  // namespace narrowcast::codec::absolute
