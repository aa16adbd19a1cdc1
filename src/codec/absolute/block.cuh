// A block of `abs` on the GPU: one warp encodes or decodes it between two buffers in shared memory. A lane has one
// group, 32 adjacent values, in its registers. reference.cc produces the same bytes.
#pragma once

#include <cstdint>
#include <type_traits>

#include "../../device/warp.cuh"
#include "format.h"

namespace narrowcast::codec::absolute {

// Arithmetic that the compiler does not contract, and the integer in the low bits of a float: adding `to_integer`
// rounds to it.
__device__ __forceinline__ float sum(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double sum(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double product(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ uint32_t integer_in(float value) {
  return __float_as_uint(sum(value, 0x1.8p23f)) - 0x4b400000;
}
__device__ __forceinline__ uint32_t integer_in(double value) {
  return static_cast<uint32_t>(__double_as_longlong(sum(value, 0x1.8p52)));
}
__device__ __forceinline__ float magnitude(float value) { return fabsf(value); }
__device__ __forceinline__ double magnitude(double value) { return fabs(value); }

template <ncast_dtype Dtype>
class Block {
  using Float = std::conditional_t<Dtype == NCAST_FLOAT32, float, double>;
  static constexpr uint32_t value_bytes = sizeof(Float), group_bytes = group_elems * value_bytes;
  static constexpr uint32_t in_vector = 16 / value_bytes, vectors = group_elems / in_vector;
  // A lane begins with another vector of its group than its neighbours, so that their accesses use different banks.
  static constexpr uint32_t bank_vectors = 8;

 public:
  static constexpr uint32_t values_bytes = block_elems * value_bytes;

  __device__ static uint32_t encode(const void* values, void* payload, int lane, Step step) {
    const auto* const group = static_cast<const char*>(values) + lane * group_bytes;
    auto* const out = static_cast<char*>(payload);
    uint32_t codes[group_elems];
    const bool coded = quantise(group, lane, step, codes);
    to_order(codes, lane);

    // The integer before the first one of a group is the last one of the last group that has integers.
    const uint32_t all_coded = __ballot_sync(device::all_lanes, coded);
    const uint32_t before = all_coded & ((1u << lane) - 1);
    const uint32_t first = __shfl_sync(device::all_lanes, codes[0], all_coded == 0 ? 0 : __ffs(all_coded) - 1);
    const uint32_t start = all_coded == 0 ? 0 : first;
    const uint32_t last =
        __shfl_sync(device::all_lanes, codes[group_elems - 1], before == 0 ? lane : device::highest_bit(before));
    uint32_t all = 0;
#pragma unroll
    for (uint32_t i = group_elems; i-- > 0;) {
      const uint32_t difference = codes[i] - (i != 0 ? codes[i - 1] : before == 0 ? start : last);
      codes[i] = difference << 1 ^ (0 - (difference >> 31));
      all |= codes[i];
    }

    const uint32_t width = coded ? device::highest_bit(all) + 1 : 0;
    const uint32_t mode = coded ? width : is_repeated(group) ? repeated_mode : raw_mode;
    const uint32_t words = words_of(mode, value_bytes);
    const uint32_t end = device::inclusive_scan(words);
    const uint32_t all_words = __shfl_sync(device::all_lanes, end, 31);
    const uint32_t bytes = payload_bytes(all_words);
    if (bytes >= values_bytes) return values_bytes;
    if (lane < 4) reinterpret_cast<uint32_t*>(out + bytes - 16)[lane] = 0;
    __syncwarp();
    if (lane == 0) *reinterpret_cast<uint32_t*>(out) = start;
    if (all_words != 0) {
      out[modes_offset + lane] = static_cast<char>(mode);
      auto* const to = reinterpret_cast<uint32_t*>(out + words_offset) + end - words;
      if (coded) {
        pack(codes, width, to);
      } else {
        copy_words(to, reinterpret_cast<const uint32_t*>(group), words, lane);
      }
    }
    __syncwarp();
    return bytes;
  }

  __device__ static bool decode(const void* payload, uint32_t bytes, void* values, int lane, Step of_codec) {
    const auto* const in = static_cast<const char*>(payload);
    auto* const group = static_cast<char*>(values) + lane * group_bytes;
    const bool is_constant = bytes == constant_payload_bytes;
    if (!is_constant && bytes < words_offset) return false;
    const uint32_t mode = is_constant ? 0 : static_cast<uint8_t>(in[modes_offset + lane]);
    if (!__all_sync(device::all_lanes, is_mode(mode))) return false;
    const uint32_t words = words_of(mode, value_bytes);
    const uint32_t end = device::inclusive_scan(words);
    const uint32_t all_words = __shfl_sync(device::all_lanes, end, 31);
    if (!is_constant && bytes != (words_offset + 4 * all_words + 15) / 16 * 16) return false;

    const auto* const from = reinterpret_cast<const uint32_t*>(in + words_offset) + end - words;
    const bool coded = mode <= most_width;
    uint32_t integers[group_elems];
    const uint32_t difference = unpack(from, coded ? mode : 0, integers);
    const uint32_t before = device::inclusive_scan(difference) - difference + *reinterpret_cast<const uint32_t*>(in);
    to_order(integers, lane);
    const Float step = of_codec.step();
    if (coded) {
#pragma unroll
      for (uint32_t v = 0; v < vectors; ++v) {
        Float x[in_vector];
#pragma unroll
        for (uint32_t i = 0; i < in_vector; ++i)
          x[i] = product(static_cast<Float>(static_cast<int32_t>(before + integers[v * in_vector + i])), step);
        store(group + 16 * (v ^ (lane % bank_vectors)), x);
      }
    } else {
      auto* const to = reinterpret_cast<uint32_t*>(group);
      if (mode == raw_mode)
        copy_words(to, from, words, lane);
      else
        for (uint32_t i = 0; i < group_bytes / 4; ++i) to[i] = from[i % words];
    }
    return true;
  }

 private:
  // Vector v of the registers is vector v ^ lane % bank_vectors of the group. Returns whether all values can be
  // quantised.
  __device__ __forceinline__ static bool quantise(const char* group, int lane, Step of_codec, uint32_t* integers) {
    const Float step = of_codec.step(), error = of_codec.error, inverse = reciprocal(step);
    bool within = true;
#pragma unroll
    for (uint32_t v = 0; v < vectors; ++v) {
      Float x[in_vector];
      load(group + 16 * (v ^ (lane % bank_vectors)), x);
#pragma unroll
      for (uint32_t i = 0; i < in_vector; ++i) {
        constexpr Float to_integer = sizeof(Float) == 4 ? 0x1.8p23 : 0x1.8p52;
        const Float quotient = product(x[i], inverse);
        Float nearest = sum(sum(quotient, to_integer), -to_integer);
        const Float excess = sum(x[i], -product(nearest, step));
        if (magnitude(excess) > error) nearest = sum(nearest, excess > 0 ? Float(1) : Float(-1));
        within = within && magnitude(quotient) <= most_quotient<Float> &&
                 magnitude(sum(x[i], -product(nearest, step))) <= error;
        integers[v * in_vector + i] = integer_in(nearest);
      }
    }
    return within;
  }
  __device__ __forceinline__ static float reciprocal(float value) { return __frcp_rn(value); }
  __device__ __forceinline__ static double reciprocal(double value) { return __drcp_rn(value); }

  // Exchanges vectors between the order of the group and that of the lane's accesses. Its own inverse.
  __device__ __forceinline__ static void to_order(uint32_t* integers, int lane) {
#pragma unroll
    for (uint32_t bit = 1; bit < bank_vectors; bit *= 2) {
      const bool exchanges = (lane & bit) != 0;
#pragma unroll
      for (uint32_t i = 0; i < group_elems; ++i) {
        const uint32_t other = i ^ bit * in_vector;
        if (other < i) continue;
        const uint32_t a = integers[i], b = integers[other];
        integers[i] = exchanges ? b : a;
        integers[other] = exchanges ? a : b;
      }
    }
  }

  __device__ __forceinline__ static void pack(const uint32_t* codes, uint32_t width, uint32_t* to) {
    uint32_t pending = 0, count = 0;
#pragma unroll
    for (uint32_t i = 0; i < group_elems; ++i) {
      pending |= codes[i] << count;
      count += width;
      if (count >= 32) {
        *to++ = pending;
        count -= 32;
        pending = __funnelshift_rc(codes[i], 0, width - count);
      }
    }
  }
  // Makes sums of the differences, and returns the last one.
  __device__ __forceinline__ static uint32_t unpack(const uint32_t* from, uint32_t width, uint32_t* integers) {
    const uint32_t* const end = from + width;
    const uint32_t mask = __funnelshift_rc(~0u, 0, 32 - width);
    uint32_t word = width != 0 ? *from++ : 0, position = 0, integer = 0;
#pragma unroll
    for (uint32_t i = 0; i < group_elems; ++i) {
      uint32_t code = word >> position;
      position += width;
      if (position >= 32) {
        position -= 32;
        word = from < end ? *from++ : 0;
        code |= __funnelshift_lc(0, word, width - position);
      }
      code &= mask;
      integers[i] = integer += code >> 1 ^ (0 - (code & 1));
    }
    return integer;
  }

  // Every lane begins with another word than its neighbours, because groups are a multiple of all banks apart.
  __device__ __forceinline__ static void copy_words(uint32_t* to, const uint32_t* from, uint32_t words, int lane) {
#pragma unroll 1
    for (uint32_t i = 0; i < words; ++i) to[(i + lane) % words] = from[(i + lane) % words];
  }
  __device__ __forceinline__ static bool is_repeated(const char* group) {
    const auto* const words = reinterpret_cast<const uint32_t*>(group);
    constexpr uint32_t in_value = value_bytes / 4, count = group_bytes / 4;
    for (uint32_t i = in_value; i < count; ++i)
      if (words[i] != words[i - in_value]) return false;
    return true;
  }

  __device__ __forceinline__ static void load(const char* from, float (&x)[4]) {
    const uint4 vector = *reinterpret_cast<const uint4*>(from);
    x[0] = __uint_as_float(vector.x), x[1] = __uint_as_float(vector.y);
    x[2] = __uint_as_float(vector.z), x[3] = __uint_as_float(vector.w);
  }
  __device__ __forceinline__ static void load(const char* from, double (&x)[2]) {
    const ulonglong2 vector = *reinterpret_cast<const ulonglong2*>(from);
    x[0] = __longlong_as_double(vector.x), x[1] = __longlong_as_double(vector.y);
  }
  __device__ __forceinline__ static void store(char* to, const float (&x)[4]) {
    *reinterpret_cast<uint4*>(to) = {__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]),
                                     __float_as_uint(x[3])};
  }
  __device__ __forceinline__ static void store(char* to, const double (&x)[2]) {
    *reinterpret_cast<ulonglong2*>(to) = {static_cast<unsigned long long>(__double_as_longlong(x[0])),
                                          static_cast<unsigned long long>(__double_as_longlong(x[1]))};
  }
};

}  // namespace narrowcast::codec::absolute
