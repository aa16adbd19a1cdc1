// Encodes a block of values with a warp. The bytes are those of reference.cc.
#pragma once

#include "codes.cuh"
#include "elements.cuh"
#include "random.h"
#include "run.cuh"

namespace narrowcast::codec::grouped {

// The random numbers of a chunk. Not inlined: together with the values of a run they would take more registers than the
// kernels of collectives have left.
__device__ __noinline__ inline RandomWords random_words_of(const device::BlockContext* context, uint32_t seed,
                                                           uint32_t index) {
  __builtin_assume(__isShared(context));
  return random_words(*context, seed, index);
}

// element: of the codec, or one with as many bits.
template <ncast_dtype Dtype, Element element>
class BlockEncoder {
 public:
  // context: in shared memory. Few blocks need it, and it would take registers from all.
  __device__ __forceinline__ BlockEncoder(const Coding& coding, const device::BlockContext* context, const void* values,
                                          void* payload, int lane)
      : coding_(coding),
        context_(context),
        values_(values),
        codes_(static_cast<char*>(payload)),
        scales_(codes_ + elems * bits_of(element) / 8),
        second_scales_(codes_ + coding.second_scales(elems)),
        group_lanes_(coding.group / run_elems),
        swap_(Run<Dtype>::swap_of(lane, coding.rotate)),
        lane_(lane) {}

  __device__ __forceinline__ void encode() {
    if constexpr (element == Element::uint8)
      encode_ranges();
    else if constexpr (is_integer(element))
      encode_integers();
    else
      encode_floats<bits_of(element)>();
  }

 private:
  static constexpr uint32_t elems = Run<Dtype>::elems;

  __device__ __forceinline__ void encode_integers() {
    constexpr int largest = largest_code(element);
    constexpr float reciprocal = reciprocal_rounded_up(static_cast<float>(largest));
    const uint32_t rotate = coding_.rotate, unit_lanes = coding_.unit() / run_elems;
    const float factor = rotation_factor(rotate);
#pragma unroll 1
    for (uint32_t run = lane_; run < Run<Dtype>::count; run += 32) {
      Run<Dtype> x{.swap = swap_};
      x.load(values_, run);
      uint32_t most = x.largest();
      bool special = false;
      if (rotate > 1) {
        special = most_of_lanes(most, unit_lanes) >= __float_as_uint(least_unrotated);
        x.rotate(rotate, factor, lane_);
        if (special) x.load(values_, run);
        most = most_of_lanes(x.largest(), group_lanes_);
      } else {
        most = most_of_lanes(most, group_lanes_);
        special = most >= infinity_bits;
      }
      uint32_t kind = special_is_unused;
      if (__any_sync(device::all_lanes, special)) {
        kind = special_kind(x, most);
        // Packing adds codes.
#pragma unroll
        for (float& value : x.value) value = is_finite(value) ? value : 0;
      }
      const uint32_t bits = scale_bits(__fmul_rn(__uint_as_float(most), reciprocal), special, kind);
      store_scale<uint16_t>(scales_, run, bits);
      // The scale of int2 can be so large that its reciprocal is subnormal.
      const float inverse = largest == 1 ? __frcp_rn(scale_of(bits)) : reciprocal_of(scale_of(bits));
      uint32_t codes[run_elems];
      round(x, run, inverse, -largest, largest, codes);
      store_codes<elems, bits_of(element), element == Element::int6, integer_offset, largest + 1>(codes_, run, swap_,
                                                                                                  codes);
      if (special) {
        for_each_not_finite(run, [&](uint32_t index, float) {
          store_code<elems, bits_of(element), element == Element::int6>(codes_, index, largest + 1);
        });
      }
    }
  }

  __device__ __forceinline__ void encode_ranges() {
#pragma unroll 1
    for (uint32_t run = lane_; run < Run<Dtype>::count; run += 32) {
      Run<Dtype> x{.swap = swap_};
      x.load(values_, run);
      uint32_t magnitude = most_of_lanes(x.largest(), group_lanes_);
      const bool special = magnitude >= infinity_bits;
      uint32_t kind = special_is_unused;
      if (__any_sync(device::all_lanes, special)) kind = special_kind(x, magnitude);
      float least = __uint_as_float(infinity_bits), most = -least;
#pragma unroll
      for (uint32_t i = 0; i < run_elems; ++i) {
        if (special && !is_finite(x.value[i])) continue;
        least = fminf(least, x.value[i]);
        most = fmaxf(most, x.value[i]);
      }
#pragma unroll 1
      for (uint32_t step = 1; step < group_lanes_; step *= 2) {
        least = fminf(least, __shfl_xor_sync(device::all_lanes, least, static_cast<int>(step)));
        most = fmaxf(most, __shfl_xor_sync(device::all_lanes, most, static_cast<int>(step)));
      }
      if (least > most) least = most = 0;
      least = __fadd_rn(least, 0.0f);  // not -0
      most = __fadd_rn(most, 0.0f);
      const float half_least = __fmul_rn(least, 0.5f);
      const float range = __fadd_rn(__fmul_rn(most, 0.5f), -half_least);
      const float factor = 2 * (special ? reciprocal_rounded_up(254) : reciprocal_rounded_up(255));
      const uint32_t bits = scale_bits(__fmul_rn(range, factor), special, kind);
      store_scale<uint16_t>(scales_, run, bits);
      if constexpr (Dtype == NCAST_FLOAT32) {
        store_scale<uint32_t>(second_scales_, run, __float_as_uint(least));
      } else {
        const uint32_t zero = Dtype == NCAST_BFLOAT16 ? device::bfloat16s_of(least, 0) : device::halves_of(least, 0);
        store_scale<uint16_t>(second_scales_, run, zero);
      }
#pragma unroll
      for (uint32_t i = 0; i < run_elems; ++i) x.value[i] = __fadd_rn(__fmul_rn(x.value[i], 0.5f), -half_least);
      uint32_t codes[run_elems];
      round(x, run, 2 * reciprocal_of(scale_of(bits)), 0, special ? 254 : 255, codes);
      store_codes<elems, 8, false, integer_offset, 0>(codes_, run, swap_, codes);
      if (special)
        for_each_not_finite(run, [&](uint32_t index, float) { store_code<elems, 8, false>(codes_, index, 255); });
    }
  }

  template <uint32_t bits>
  __device__ __forceinline__ void encode_floats() {
    const SmallFloat format = format_of<bits>(coding_.element);
    const bool is_e5m2 = coding_.element == Element::e5m2;
    const float reciprocal = bits == 8 ? is_e5m2 ? reciprocal_rounded_up(57344) : reciprocal_rounded_up(448) : 0;
    const float block_scale = coding_.scale == Scale::e4m3 ? store_block_scale() : 1;
    const float block_inverse = __frcp_rn(block_scale);
#pragma unroll 1
    for (uint32_t run = lane_; run < Run<Dtype>::count; run += 32) {
      Run<Dtype> x{.swap = swap_};
      x.load(values_, run);
      uint32_t most = most_of_lanes(x.largest(), group_lanes_);
      const bool finite = most < infinity_bits;
      const bool all_finite = __all_sync(device::all_lanes, finite);
      float inverse = 0;
      uint32_t infinity_code = 0xff;  // 0xff: infinities become NaN
      if (coding_.scale == Scale::float32) {
        uint32_t flag = 0;
        if (!all_finite) {
          const uint32_t kinds = kinds_in_group(x);
          most = most_of_lanes(x.largest_finite(), group_lanes_);
          flag = !is_e5m2 && kinds != 0 && (kinds & has_nan) == 0 ? infinite_scale : 0;
          infinity_code = is_e5m2 ? 0x7c : (kinds & has_nan) == 0 ? 0x7f : 0xff;
        }
        const float scale = fmaxf(__fmul_rn(__uint_as_float(most), reciprocal), least_scale);
        store_scale<uint32_t>(scales_, run, __float_as_uint(scale) | flag);
        inverse = __frcp_rn(scale);
      } else if (coding_.scale == Scale::e8m0) {
        const int exponent = static_cast<int>(most >> 23) - format.largest_exponent;
        const uint32_t byte = finite ? static_cast<uint32_t>(max(exponent, 0)) : e8m0_nan;
        store_scale<uint8_t>(scales_, run, byte);
        inverse = finite ? __uint_as_float((254 - byte) << 23) : 0;
      } else {
        const SmallFloat e4m3 = small_float(Element::e4m3);
        const float relative = __fmul_rn(__fmul_rn(__uint_as_float(most), 1 / 6.0f), block_inverse);
        const uint32_t byte = finite ? magnitude_code(e4m3, fminf(relative, e4m3.largest)) : e4m3_nan;
        store_scale<uint8_t>(scales_, run, byte);
        const float scale = __fmul_rn(magnitude_value(e4m3, byte), block_scale);
        inverse = finite && scale != 0 ? __frcp_rn(scale) : 0;
      }
      // The codes of a group that is NaN are 0.
      if (!finite && coding_.scale != Scale::float32) {
#pragma unroll
        for (float& value : x.value) value = 0;
      }
      if constexpr (bits == 8 && device::has_float8) {
        if (!coding_.is_stochastic && all_finite) {
          uint32_t words[4];
#pragma unroll
          for (uint32_t i = 0; i < 4; ++i) {
            const auto pair = [&](uint32_t first) {
              const float a = __fmul_rn(x.value[first], inverse), b = __fmul_rn(x.value[first + 1], inverse);
              return is_e5m2 ? device::e5m2s_of(a, b) : device::e4m3s_of(a, b);
            };
            words[i] = __byte_perm(pair(4 * i), pair(4 * i + 2), 0x5410);
          }
          reinterpret_cast<uint4*>(codes_)[run] = swap_ != 0 ? uint4{words[2], words[3], words[0], words[1]}
                                                             : uint4{words[0], words[1], words[2], words[3]};
          continue;
        }
      }
      uint32_t codes[run_elems];
      const auto magnitude_of = [&](uint32_t i) {
        return fminf(__fmul_rn(fabsf(x.value[i]), inverse), format.largest);
      };
      const auto sign_of = [&](uint32_t i) { return __float_as_uint(x.value[i]) >> 31 << (bits - 1); };
      if (coding_.is_stochastic) {
        for_each_random(x, run, codes, [&](uint32_t i, uint32_t random) {
          return magnitude_code(format, magnitude_of(i), random) | sign_of(i);
        });
      } else {
#pragma unroll
        for (uint32_t i = 0; i < run_elems; ++i) codes[i] = magnitude_code(format, magnitude_of(i)) | sign_of(i);
      }
      store_codes<elems, bits, false, 0, 0>(codes_, run, swap_, codes);
      if (bits == 8 && !finite && coding_.scale == Scale::float32)
        for_each_not_finite(run, [&](uint32_t index, float value) {
          store_code<elems, 8, false>(codes_, index, float8_of(value, infinity_code));
        });
    }
  }

  // Calls visit(index in the block, value) for the values of a run that are not finite.
  template <typename Visit>
  __device__ __forceinline__ void for_each_not_finite(uint32_t run, Visit visit) const {
#pragma unroll 1
    for (uint32_t index = run * run_elems; index < (run + 1) * run_elems; ++index) {
      const float value = Run<Dtype>::load_value(values_, index);
      if (!is_finite(value)) visit(index, value);
    }
  }

  // What values are not finite, with a bit each.
  enum : uint32_t { has_nan = 1, has_infinity = 2, has_minus_infinity = 4 };

  __device__ __forceinline__ static uint32_t kind_of(float value) {
    const uint32_t magnitude = magnitude_bits(value);
    if (magnitude < infinity_bits) return 0;
    return magnitude > infinity_bits ? has_nan : value > 0 ? has_infinity : has_minus_infinity;
  }
  __device__ __forceinline__ uint32_t kinds_in_group(const Run<Dtype>& x) const {
    uint32_t kinds = 0;
#pragma unroll
    for (uint32_t i = 0; i < run_elems; ++i) kinds |= kind_of(x.value[i]);
#pragma unroll 1
    for (uint32_t step = 1; step < group_lanes_; step *= 2)
      kinds |= __shfl_xor_sync(device::all_lanes, kinds, static_cast<int>(step));
    return kinds;
  }
  // What the special code of the group means. Sets the bits of the largest finite magnitude of the group.
  __device__ __forceinline__ uint32_t special_kind(const Run<Dtype>& x, uint32_t& most) const {
    const uint32_t kinds = kinds_in_group(x);
    most = most_of_lanes(x.largest_finite(), group_lanes_);
    return kinds == 0                    ? special_is_unused
           : kinds == has_infinity       ? special_is_infinity
           : kinds == has_minus_infinity ? special_is_minus_infinity
                                         : special_is_nan;
  }
  // The float8 of a value that is not finite.
  __device__ __forceinline__ static uint32_t float8_of(float value, uint32_t infinity_code) {
    if (magnitude_bits(value) > infinity_bits || infinity_code == 0xff) return 0x7f;
    return infinity_code | __float_as_uint(value) >> 31 << 7;
  }

  // The bits of a bfloat16 scale that is not below p, and the scale.
  __device__ __forceinline__ static uint32_t scale_bits(float p, bool special, uint32_t kind) {
    const uint32_t bits = min(max((__float_as_uint(p) + 0xffff) >> 16, 0x0080u), 0x7f7fu);
    return special ? min((bits + 3) & ~3u, 0x7f7cu) | kind | special_scale : bits;
  }
  __device__ __forceinline__ static float scale_of(uint32_t bits) {
    return __uint_as_float((bits & special_scale) != 0 ? (bits & 0x7ffc) << 16 : bits << 16);
  }
  // 1 / scale, rounded to nearest. One step of Newton's method suffices for the 128 mantissas of a bfloat16.
  __device__ __forceinline__ static float reciprocal_of(float scale) {
    const float near = device::approximate_reciprocal(scale);
    return __fmaf_rn(near, __fmaf_rn(-scale, near, 1.0f), near);
  }

  // nvfp4: stores the scale of the block, and returns it.
  __device__ __forceinline__ float store_block_scale() const {
    uint32_t most = 0;
#pragma unroll 1
    for (uint32_t run = lane_; run < Run<Dtype>::count; run += 32) {
      Run<Dtype> x{.swap = swap_};
      x.load(values_, run);
      most = max(most, x.largest_finite());
    }
    most = __reduce_max_sync(device::all_lanes, most);
    const float scale = fmaxf(__fdiv_rn(__uint_as_float(most), 448 * 6), least_block_scale);
    if (lane_ == 0) *reinterpret_cast<uint4*>(second_scales_) = {__float_as_uint(scale), 0, 0, 0};
    return scale;
  }

  // One lane of each group stores a number of the group.
  template <typename Number>
  __device__ __forceinline__ void store_scale(char* to, uint32_t run, uint32_t number) const {
    if ((run & (group_lanes_ - 1)) == 0)
      reinterpret_cast<Number*>(to)[run >> log2_of(group_lanes_)] = static_cast<Number>(number);
  }
  __device__ __forceinline__ static uint32_t log2_of(uint32_t power) { return device::highest_bit(power); }

  // Rounds value * inverse, which is at most `most`, to integers: codes for store_codes() with a bias of 1 - least, or
  // none if least is 0.
  __device__ __forceinline__ void round(const Run<Dtype>& x, uint32_t run, float inverse, int least, int most,
                                        uint32_t* codes) const {
    const int bias = least == 0 ? 0 : 1 - least;
    if (!coding_.is_stochastic) {
#pragma unroll
      for (uint32_t i = 0; i < run_elems; ++i)
        codes[i] = __float_as_uint(__fmaf_rn(x.value[i], inverse, to_integer + static_cast<float>(bias)));
      return;
    }
    for_each_random(x, run, codes, [&](uint32_t i, uint32_t random) {
      const float quotient = __fmul_rn(x.value[i], inverse);
      const uint32_t parts = __float_as_uint(__fmaf_rn(quotient, 1 << random_bits, to_integer)) - integer_offset;
      const int rounded = static_cast<int>(parts + random) >> random_bits;
      return integer_offset + static_cast<uint32_t>(min(max(rounded, least), most) + bias);
    });
  }

  // codes[i] = code_of(i, random number) for each value of a run.
  template <typename CodeOf>
  __device__ __forceinline__ void for_each_random(const Run<Dtype>& x, uint32_t run, uint32_t* codes,
                                                  CodeOf code_of) const {
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const RandomWords words = random_words_of(context_, coding_.seed, x.chunk(run, half) * chunk_elems);
#pragma unroll
      for (uint32_t i = 0; i < chunk_elems; ++i)
        codes[half * chunk_elems + i] = code_of(half * chunk_elems + i, random_number(words, i));
    }
  }

  const Coding coding_;
  const device::BlockContext* const context_;
  const void* const values_;
  char* const codes_;
  char* const scales_;
  char* const second_scales_;
  const uint32_t group_lanes_;
  const uint32_t swap_;
  const int lane_;
};

}  // namespace narrowcast::codec::grouped
