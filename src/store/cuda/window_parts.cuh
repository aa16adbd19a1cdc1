// Joins the parts of elements that the coder `window` of rows separates (docs/format/rows.md).
#pragma once

#include <cstdint>

#include "../../codec/window/format.h"
#include "../../codec/window/parts.cuh"
#include "../../device/warp.cuh"

namespace narrowcast::store::cuda {

namespace window = codec::window;

// After a trim. float32 has one tail byte or none; eight bits of the rest of float16 remain, one byte.
inline constexpr window::ValueType float32_24{4, 8, 1, 1, 0}, float32_16{4, 8, 0, 1, 0}, trimmed_float16{2, 5, 0, 1, 0};

// Exponents have one byte each in a word, or two if they do not fit into bytes.
template <window::ValueType Type>
inline constexpr uint32_t exponents_in_word_of = Type.exponent_bits > 8 ? 2 : 4;

template <typename T>
__device__ __forceinline__ T load_as(const char* from) {
  return *reinterpret_cast<const T*>(from);
}

// The heads of four elements, number `word` of a lane. exponents: of all elements of the lane.
template <window::ValueType Type>
__device__ __forceinline__ window::Heads heads_of_word(const uint32_t (&exponents)[32 / exponents_in_word_of<Type>],
                                                       int word, uint32_t rest_bytes, uint32_t rest_bits) {
  constexpr bool is_trimmed_float16 = Type.value_bytes == 2 && Type.exponent_bits == 5 && Type.rest_bits == 0;
  if constexpr (exponents_in_word_of<Type> == 2) {
    window::Heads heads;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t rest = __byte_perm(rest_bits, 0, i == 0 ? 0x4140 : 0x4342);
      heads.pair[i] =
          exponents[2 * word + i] << 4 | (rest & device::halves2(0xf)) | (rest << 11 & device::halves2(0x8000));
    }
    return heads;
  } else if constexpr (is_trimmed_float16) {
    using device::bytes4;
    // The byte above has the sign, the exponent and two bits of the mantissa.
    const uint32_t high = (rest_bytes & bytes4(0x80)) | exponents[word] << 2 | (rest_bytes >> 5 & bytes4(3));
    const uint32_t low = rest_bytes << 3 & bytes4(0xf8);
    return {{__byte_perm(low, high, 0x5140), __byte_perm(low, high, 0x7362)}};
  } else {
    return window::heads_of<Type>(exponents[word], 0, rest_bytes, rest_bits);
  }
}

// float32: the tails of four elements, two in each word.
template <window::ValueType Type>
__device__ __forceinline__ uint2 tails_of_four(const char* at) {
  if constexpr (Type.tail_bytes == 2) return {load_as<uint32_t>(at), load_as<uint32_t>(at + 4)};
  if constexpr (Type.tail_bytes == 0) return {0, 0};
  const uint32_t bytes = load_as<uint32_t>(at);  // the upper bytes of the tails
  return {__byte_perm(bytes, 0, 0x1404), __byte_perm(bytes, 0, 0x3424)};
}
// float64: the tail of the first or the second of two elements, in the low 48 bits. tail_bytes: that are stored.
__device__ __forceinline__ uint64_t tail_of(const char* at, uint32_t number, uint32_t tail_bytes) {
  if (tail_bytes == 6) {
    if (number == 0) return load_as<uint32_t>(at) | uint64_t{load_as<uint32_t>(at + 4) & 0xffff} << 32;
    return load_as<uint32_t>(at + 4) >> 16 | uint64_t{load_as<uint32_t>(at + 8)} << 16;
  }
  uint64_t tail = 0;
  for (uint32_t i = 0; i < tail_bytes; ++i) tail |= uint64_t{load_as<uint8_t>(at + number * tail_bytes + i)} << 8 * i;
  return tail << 8 * (6 - tail_bytes);
}

}  // namespace narrowcast::store::cuda
