#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

#include "codec/absolute/block.h"
#include "codec/absolute/format.h"

namespace narrowcast::codec::absolute {
namespace {

template <typename Number>
Number number_at(const uint8_t* bytes, size_t index) {
  Number number;
  std::memcpy(&number, bytes + index * sizeof number, sizeof number);
  return number;
}
template <typename Number>
void put_number(uint8_t* bytes, size_t index, Number number) {
  std::memcpy(bytes + index * sizeof number, &number, sizeof number);
}

using Integers = std::array<int32_t, group_elems>;

// The integer whose multiple of the step stands for a value; none if the error would be too large.
template <typename Float>
std::optional<int32_t> quantised(Float value, Float step, Float error) {
  const Float quotient = value * (1 / step);
  if (!(std::abs(quotient) <= most_quotient<Float>)) return std::nullopt;
  auto integer = static_cast<int32_t>(std::nearbyint(quotient));
  // The quotient has been rounded, so that it may be on the wrong side of the middle between two integers.
  const Float excess = value - static_cast<Float>(integer) * step;
  if (excess > error) ++integer;
  if (excess < -error) --integer;
  // The difference is exact if it is near the error, because the two are then within a factor of two, or one is 0.
  if (!(std::abs(value - static_cast<Float>(integer) * step) <= error)) return std::nullopt;
  return integer;
}

template <typename Float>
std::optional<Integers> quantised_group(const uint8_t* values, Step step) {
  Integers integers;
  for (uint32_t i = 0; i < group_elems; ++i) {
    const auto integer = quantised<Float>(number_at<Float>(values, i), step.step(), step.error);
    if (!integer) return std::nullopt;
    integers[i] = *integer;
  }
  return integers;
}

// 0, -1, 1, -2, ... become 0, 1, 2, 3, ...
uint32_t zigzag(uint32_t difference) { return difference << 1 ^ (0 - (difference >> 31)); }
uint32_t difference_of(uint32_t code) { return code >> 1 ^ (0 - (code & 1)); }

void put_bits(uint8_t* bytes, size_t first, uint32_t width, uint32_t code) {
  for (uint32_t i = 0; i < width; ++i)
    bytes[(first + i) / 8] |= static_cast<uint8_t>((code >> i & 1) << (first + i) % 8);
}
uint32_t get_bits(const uint8_t* bytes, size_t first, uint32_t width) {
  uint32_t code = 0;
  for (uint32_t i = 0; i < width; ++i)
    code |= static_cast<uint32_t>(bytes[(first + i) / 8] >> (first + i) % 8 & 1) << i;
  return code;
}

template <typename Float>
bool is_repeated(const uint8_t* values) {
  return std::memcmp(values, values + sizeof(Float), (group_elems - 1) * sizeof(Float)) == 0;
}

template <typename Float>
size_t encode(const BlockType& type, const uint8_t* values, uint8_t* payload) {
  const Step step(type.codec);
  std::array<uint8_t, groups> modes;
  std::array<std::array<uint32_t, group_elems>, groups> codes;
  std::optional<uint32_t> start;
  uint32_t last = 0, words = 0;
  for (uint32_t group = 0; group < groups; ++group) {
    const uint8_t* const of_group = values + group * group_elems * sizeof(Float);
    uint32_t mode = is_repeated<Float>(of_group) ? repeated_mode : raw_mode;
    if (const std::optional<Integers> integers = quantised_group<Float>(of_group, step)) {
      if (!start) last = *(start = static_cast<uint32_t>(integers->front()));
      uint32_t all = 0;
      for (uint32_t i = 0; i < group_elems; ++i) {
        const auto integer = static_cast<uint32_t>((*integers)[i]);
        all |= codes[group][i] = zigzag(integer - last);
        last = integer;
      }
      mode = static_cast<uint32_t>(std::bit_width(all));
    }
    modes[group] = static_cast<uint8_t>(mode);
    words += words_of(mode, sizeof(Float));
  }
  const uint32_t bytes = payload_bytes(words);
  if (bytes >= type.block_bytes) {
    std::memcpy(payload, values, type.block_bytes);
    return type.block_bytes;
  }
  std::memset(payload, 0, bytes);
  put_number(payload, 0, start.value_or(0));
  if (words == 0) return bytes;
  uint8_t* to = payload + words_offset;
  for (uint32_t group = 0; group < groups; ++group) {
    const uint8_t* const of_group = values + group * group_elems * sizeof(Float);
    const uint32_t mode = modes[group], group_bytes = 4 * words_of(mode, sizeof(Float));
    payload[modes_offset + group] = modes[group];
    if (mode > most_width) {
      std::memcpy(to, of_group, group_bytes);
    } else {
      for (uint32_t i = 0; i < group_elems; ++i) put_bits(to, i * mode, mode, codes[group][i]);
    }
    to += group_bytes;
  }
  return bytes;
}

template <typename Float>
bool decode(const BlockType& type, const uint8_t* payload, size_t bytes, uint8_t* values) {
  if (bytes == type.block_bytes) {
    std::memcpy(values, payload, bytes);
    return true;
  }
  if (bytes != constant_payload_bytes && (bytes % 16 != 0 || bytes < words_offset)) return false;
  std::array<uint8_t, groups> modes = {};
  if (bytes != constant_payload_bytes) std::memcpy(modes.data(), payload + modes_offset, groups);
  uint32_t words = 0;
  for (const uint8_t mode : modes) {
    if (!is_mode(mode)) return false;
    words += words_of(mode, sizeof(Float));
  }
  if (bytes != constant_payload_bytes && bytes != (words_offset + 4 * words + 15) / 16 * 16) return false;

  const Float step = Step(type.codec).step();
  auto last = number_at<uint32_t>(payload, 0);
  const uint8_t* from = payload + words_offset;
  for (uint32_t group = 0; group < groups; ++group) {
    const uint32_t mode = modes[group];
    for (uint32_t i = 0; i < group_elems; ++i) {
      Float value;
      if (mode > most_width) {
        value = number_at<Float>(from, mode == raw_mode ? i : 0);
      } else {
        last += difference_of(get_bits(from, i * mode, mode));
        value = static_cast<Float>(static_cast<int32_t>(last)) * step;
      }
      put_number(values, group * group_elems + i, value);
    }
    from += 4 * words_of(mode, sizeof(Float));
  }
  return true;
}

}  // namespace

const BlockCoder reference{[](const BlockType& type, const BlockContext&, const uint8_t* values, uint8_t* payload) {
                             return type.dtype == NCAST_FLOAT32 ? encode<float>(type, values, payload)
                                                                : encode<double>(type, values, payload);
                           },
                           [](const BlockType& type, const uint8_t* payload, size_t payload_bytes, uint8_t* values) {
                             return type.dtype == NCAST_FLOAT32 ? decode<float>(type, payload, payload_bytes, values)
                                                                : decode<double>(type, payload, payload_bytes, values);
                           }};

}  // namespace narrowcast::codec::absolute
