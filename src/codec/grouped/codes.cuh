// The codes of a run in the payload, as numbers in the registers of a lane.
#pragma once

#include "run.cuh"

namespace narrowcast::codec::grouped {

// Sixteen codes in the order of the registers of a Run. While they are made, integers are floats: adding `to_integer`
// rounds to an integer, and leaves `offset` + integer in the bits.
inline constexpr float to_integer = 0x1.8p23f;
inline constexpr uint32_t integer_offset = 0x4b400000;

// Codes 0 to count - 1 one after the other, from the lowest bit. offset: what each number is too large by.
template <uint32_t bits, uint32_t offset>
__device__ __forceinline__ uint32_t packed(const uint32_t* codes, uint32_t count) {
  uint32_t word = codes[count - 1], excess = offset;
#pragma unroll
  for (uint32_t i = count - 1; i > 0; --i) {
    word = (word << bits) + codes[i - 1];
    excess = (excess << bits) + offset;
  }
  return word - excess;
}

// Stores the codes of a run. bias: what is added to each integer to make it positive, half the number of codes; it is
// the sign bit in two's complement. 0 for other elements.
template <uint32_t elems, uint32_t bits, bool in_planes, uint32_t offset, uint32_t bias>
__device__ __forceinline__ void store_codes(char* payload, uint32_t run, uint32_t swap, const uint32_t* codes) {
  // The chunks in the order of their addresses.
  const auto pair = [swap](uint32_t a, uint32_t b) { return swap != 0 ? uint2{b, a} : uint2{a, b}; };
  if constexpr (bits == 8) {
    constexpr uint32_t signs = bias * 0x01010101u;
    const auto word = [codes](uint32_t first) {
      const uint32_t low = __byte_perm(codes[first], codes[first + 1], 0x0040);
      return __byte_perm(low, __byte_perm(codes[first + 2], codes[first + 3], 0x0040), 0x5410) ^ signs;
    };
    const uint2 low = pair(word(0), word(8)), high = pair(word(4), word(12));
    reinterpret_cast<uint4*>(payload)[run] = {low.x, high.x, low.y, high.y};
  } else if constexpr (in_planes) {
    uint32_t lower[run_elems], upper[run_elems];
#pragma unroll
    for (uint32_t i = 0; i < run_elems; ++i) {
      lower[i] = codes[i] & 15;
      upper[i] = codes[i] >> 4 & 3;
    }
    reinterpret_cast<uint2*>(payload)[run] = pair(packed<4, 0>(lower, 8), packed<4, 0>(lower + 8, 8));
    const uint2 halves = pair(packed<2, 0>(upper, 8), packed<2, 0>(upper + 8, 8));
    reinterpret_cast<uint32_t*>(payload + elems / 2)[run] = (halves.x | halves.y << 16) ^ (bias >> 5) * 0xaaaaaaaa;
  } else if constexpr (bits == 6) {
    const uint2 low = pair(packed<6, offset>(codes, 4), packed<6, offset>(codes + 8, 4));
    const uint2 high = pair(packed<6, offset>(codes + 4, 4), packed<6, offset>(codes + 12, 4));
    auto* const to = reinterpret_cast<uint32_t*>(payload) + 3 * run;
    to[0] = low.x | high.x << 24;
    to[1] = high.x >> 8 | low.y << 16;
    to[2] = low.y >> 16 | high.y << 8;
  } else if constexpr (bits == 4) {
    constexpr uint32_t signs = bias * 0x11111111u;
    const uint2 words = pair(packed<4, offset>(codes, 8), packed<4, offset>(codes + 8, 8));
    reinterpret_cast<uint2*>(payload)[run] = {words.x ^ signs, words.y ^ signs};
  } else {
    constexpr uint32_t signs = bias * 0x55555555u;
    const uint2 halves = pair(packed<2, offset>(codes, 8), packed<2, offset>(codes + 8, 8));
    reinterpret_cast<uint32_t*>(payload)[run] = (halves.x | halves.y << 16) ^ signs;
  }
}

// Loads the codes of a run.
template <uint32_t elems, uint32_t bits, bool in_planes>
__device__ __forceinline__ void load_codes(const char* payload, uint32_t run, uint32_t swap, uint32_t* codes) {
  const auto in_order = [swap](uint2 words) { return swap != 0 ? uint2{words.y, words.x} : words; };
  if constexpr (bits == 8) {
    const uint4 all = reinterpret_cast<const uint4*>(payload)[run];
    const uint2 low = in_order({all.x, all.z}), high = in_order({all.y, all.w});
    const uint32_t words[] = {low.x, high.x, low.y, high.y};
#pragma unroll
    for (uint32_t i = 0; i < run_elems; ++i) codes[i] = __byte_perm(words[i / 4], 0, 0x4440 + i % 4);
  } else if constexpr (in_planes) {
    const uint2 low = in_order(reinterpret_cast<const uint2*>(payload)[run]);
    uint32_t high = reinterpret_cast<const uint32_t*>(payload + elems / 2)[run];
    if (swap != 0) high = high >> 16 | high << 16;
#pragma unroll
    for (uint32_t i = 0; i < run_elems; ++i)
      codes[i] = ((i < 8 ? low.x : low.y) >> i % 8 * 4 & 15) | (high >> i * 2 & 3) << 4;
  } else if constexpr (bits == 6) {
    const auto* const from = reinterpret_cast<const uint32_t*>(payload) + 3 * run;
    const uint32_t a = from[0], b = from[1], c = from[2];
    const uint2 low = in_order({a, b >> 16 | c << 16}), high = in_order({a >> 24 | b << 8, c >> 8});
    const uint32_t words[] = {low.x, high.x, low.y, high.y};
#pragma unroll
    for (uint32_t i = 0; i < run_elems; ++i) codes[i] = words[i / 4] >> i % 4 * 6 & 0x3f;
  } else if constexpr (bits == 4) {
    const uint2 words = in_order(reinterpret_cast<const uint2*>(payload)[run]);
#pragma unroll
    for (uint32_t i = 0; i < run_elems; ++i) codes[i] = (i < 8 ? words.x : words.y) >> i % 8 * 4 & 15;
  } else {
    uint32_t word = reinterpret_cast<const uint32_t*>(payload)[run];
    if (swap != 0) word = word >> 16 | word << 16;
#pragma unroll
    for (uint32_t i = 0; i < run_elems; ++i) codes[i] = word >> i * 2 & 3;
  }
}

// The integers of a run as floats. bias: as above.
template <uint32_t elems, uint32_t bits, bool in_planes, uint32_t bias>
__device__ __forceinline__ void load_integers(const char* payload, uint32_t run, uint32_t swap, float* numbers) {
  // The bits of 2^23, below which there is place for a number; a float with both is their sum.
  constexpr uint32_t two_to_23 = 0x4b000000;
  const auto in_order = [swap](uint2 words) { return swap != 0 ? uint2{words.y, words.x} : words; };
  const auto without_bias = [](uint32_t number) {
    return __fadd_rn(__uint_as_float(number), -(0x1p23f + static_cast<float>(bias)));
  };
  if constexpr (bits == 8) {
    constexpr uint32_t signs = bias * 0x01010101u;
    const uint4 all = reinterpret_cast<const uint4*>(payload)[run];
    const uint2 low = in_order({all.x, all.z}), high = in_order({all.y, all.w});
    const uint32_t words[] = {low.x ^ signs, high.x ^ signs, low.y ^ signs, high.y ^ signs};
#pragma unroll
    for (uint32_t i = 0; i < run_elems; ++i)
      numbers[i] = without_bias(__byte_perm(words[i / 4], two_to_23, 0x7440 + i % 4));
  } else if constexpr (bits == 4) {
    constexpr uint32_t signs = bias * 0x11111111u;
    const uint2 both = in_order(reinterpret_cast<const uint2*>(payload)[run]);
    const uint32_t words[] = {both.x ^ signs, both.y ^ signs};
#pragma unroll
    for (uint32_t i = 0; i < run_elems; ++i) {
      // A number stays where it is in the word, and is divided by 16 for each place.
      const uint32_t word = i % 8 < 5 ? words[i / 8] : words[i / 8] >> 12, place = i % 8 < 5 ? i % 8 : i % 8 - 3;
      const float divisor = static_cast<float>(1u << 4 * place);
      numbers[i] = __fmaf_rn(__uint_as_float(two_to_23 | (word & 15u << 4 * place)), 1 / divisor,
                             -(0x1p23f / divisor + static_cast<float>(bias)));
    }
  } else {
    uint32_t codes[run_elems];
    load_codes<elems, bits, in_planes>(payload, run, swap, codes);
#pragma unroll
    for (uint32_t i = 0; i < run_elems; ++i) numbers[i] = without_bias(two_to_23 | (codes[i] ^ bias));
  }
}

// Single codes, for the few groups that need them. index: of the value in the block. A lane only stores codes of its
// run.
template <uint32_t elems, uint32_t bits, bool in_planes>
__device__ __forceinline__ uint32_t load_code(const char* payload, uint32_t index) {
  const auto part = [payload, index](uint32_t first, uint32_t width) {
    const auto* const bytes = reinterpret_cast<const uint8_t*>(payload) + first;
    return uint32_t{bytes[index * width / 8]} >> index * width % 8 & ((1u << width) - 1);
  };
  if constexpr (in_planes) return part(0, 4) | part(elems / 2, 2) << 4;
  return part(0, bits);
}
template <uint32_t elems, uint32_t bits, bool in_planes>
__device__ __forceinline__ void store_code(char* payload, uint32_t index, uint32_t code) {
  const auto part = [payload, index](uint32_t first, uint32_t width, uint32_t number) {
    uint8_t& byte = reinterpret_cast<uint8_t*>(payload)[first + index * width / 8];
    const uint32_t shift = index * width % 8, mask = (1u << width) - 1;
    byte = static_cast<uint8_t>((byte & ~(mask << shift)) | (number & mask) << shift);
  };
  if constexpr (in_planes) {
    part(0, 4, code);
    part(elems / 2, 2, code >> 4);
  } else {
    part(0, bits, code);
  }
}

}  // namespace narrowcast::codec::grouped
