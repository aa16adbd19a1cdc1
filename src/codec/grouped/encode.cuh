// Encodes a block of values with a warp. The bytes are those of reference.cc.
#pragma once

#include "chunk.cuh"
#include "chunk_floats.cuh"
#include "random.h"

namespace narrowcast::codec::grouped {

// Adding it to a float below 2^22 rounds to an integer, which the low bits of the sum are.
inline constexpr float to_integer = 0x1.8p23f;
inline constexpr uint32_t to_integer_bits = 0x4b400000;

template <ncast_dtype Dtype>
class BlockEncoder {
 public:
  __device__ __forceinline__ BlockEncoder(const Coding& coding, const device::BlockContext& context, const void* values,
                                          void* payload, int lane)
      : coding_(coding),
        context_(context),
        values_(values),
        codes_(static_cast<char*>(payload)),
        scales_(codes_ + coding.scales(elems)),
        second_scales_(codes_ + coding.second_scales(elems)),
        group_lanes_(coding.group / chunk_elems),
        lane_(lane) {}

  __device__ __forceinline__ void encode() {
    switch (coding_.element) {
      case Element::int8: return encode_integers<Element::int8>();
      case Element::uint8: return encode_ranges();
      case Element::int6: return encode_integers<Element::int6>();
      case Element::int4: return encode_integers<Element::int4>();
      case Element::int2: return encode_integers<Element::int2>();
      case Element::e4m3:
      case Element::e5m2: return encode_floats<8>();
      case Element::e2m3:
      case Element::e3m2: return encode_floats<6>();
      default: return encode_floats<4>();
    }
  }

 private:
  static constexpr uint32_t elems = block_bytes * 8 / (Dtype == NCAST_FLOAT32 ? 32 : 16);
  static constexpr uint32_t chunks = elems / chunk_elems;

  template <Element element>
  __device__ __forceinline__ void encode_integers() {
    constexpr int largest = largest_code(element);
    constexpr float reciprocal = reciprocal_rounded_up(static_cast<float>(largest));
    const uint32_t rotate = coding_.rotate, unit_lanes = coding_.unit() / chunk_elems;
    const float factor = rotation_factor(rotate);
#pragma unroll 1
    for (uint32_t chunk = lane_; chunk < chunks; chunk += 32) {
      Chunk<Dtype> x = Chunk<Dtype>::load(values_, chunk);
      uint32_t most = x.largest();
      bool special = false;
      if (rotate > 1) {
        special = most_of_lanes(most, unit_lanes) >= __float_as_uint(least_unrotated);
        Chunk<Dtype> rotated = x;
        rotated.rotate(rotate, factor, lane_);
        if (!special) x = rotated;
        most = most_of_lanes(x.largest(), group_lanes_);
      } else {
        most = most_of_lanes(most, group_lanes_);
        special = most >= infinity_bits;
      }
      uint32_t kind = special_is_unused;
      if (__any_sync(device::all_lanes, special)) kind = special_kind(x, most);
      const uint32_t bits = scale_bits(__fmul_rn(__uint_as_float(most), reciprocal), special, kind);
      store_scale<uint16_t>(scales_, chunk, bits);
      uint32_t codes[chunk_elems];
      round(x.value, chunk, inverse_of(bits), -largest, largest, codes);
      if (special) {
#pragma unroll
        for (uint32_t i = 0; i < chunk_elems; ++i)
          if (!is_finite(x.value[i])) codes[i] = static_cast<uint32_t>(-largest - 1);
      }
      store_codes<bits_of(element), element == Element::int6>(chunk, codes);
    }
  }

  __device__ __forceinline__ void encode_ranges() {
#pragma unroll 1
    for (uint32_t chunk = lane_; chunk < chunks; chunk += 32) {
      Chunk<Dtype> x = Chunk<Dtype>::load(values_, chunk);
      uint32_t magnitude = most_of_lanes(x.largest(), group_lanes_);
      const bool special = magnitude >= infinity_bits;
      uint32_t kind = special_is_unused;
      if (__any_sync(device::all_lanes, special)) kind = special_kind(x, magnitude);
      float least = __uint_as_float(infinity_bits), most = -least;
#pragma unroll
      for (uint32_t i = 0; i < chunk_elems; ++i) {
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
      const float range = __fadd_rn(__fmul_rn(most, 0.5f), -__fmul_rn(least, 0.5f));
      const float factor = 2 * (special ? reciprocal_rounded_up(254) : reciprocal_rounded_up(255));
      const uint32_t bits = scale_bits(__fmul_rn(range, factor), special, kind);
      store_scale<uint16_t>(scales_, chunk, bits);
      if constexpr (Dtype == NCAST_FLOAT32) {
        store_scale<uint32_t>(second_scales_, chunk, __float_as_uint(least));
      } else {
        const uint32_t zero = Dtype == NCAST_BFLOAT16 ? device::bfloat16s_of(least, 0) : device::halves_of(least, 0);
        store_scale<uint16_t>(second_scales_, chunk, zero);
      }
      float above[chunk_elems];
#pragma unroll
      for (uint32_t i = 0; i < chunk_elems; ++i)
        above[i] = __fadd_rn(__fmul_rn(x.value[i], 0.5f), -__fmul_rn(least, 0.5f));
      const int largest = special ? 254 : 255;
      uint32_t codes[chunk_elems];
      round(above, chunk, 2 * inverse_of(bits), 0, largest, codes);
      if (special) {
#pragma unroll
        for (uint32_t i = 0; i < chunk_elems; ++i)
          if (!is_finite(x.value[i])) codes[i] = 255;
      }
      store_codes<8, false>(chunk, codes);
    }
  }

  template <uint32_t bits>
  __device__ __forceinline__ void encode_floats() {
    const SmallFloat format = small_float(coding_.element);
    const bool is_e5m2 = coding_.element == Element::e5m2;
    const float reciprocal = bits == 8 ? is_e5m2 ? reciprocal_rounded_up(57344) : reciprocal_rounded_up(448) : 0;
    const float block_scale = coding_.scale == Scale::e4m3 ? store_block_scale() : 0;
#pragma unroll 1
    for (uint32_t chunk = lane_; chunk < chunks; chunk += 32) {
      Chunk<Dtype> x = Chunk<Dtype>::load(values_, chunk);
      uint32_t most = most_of_lanes(x.largest(), group_lanes_);
      const bool finite = most < infinity_bits;
      float inverse = 0;
      uint32_t infinity_code = 0;  // 0: other values than finite ones become 0
      if (coding_.scale == Scale::float32) {
        uint32_t flag = 0;
        if (!__all_sync(device::all_lanes, finite)) {
          const uint32_t kinds = kinds_in_group(x);
          most = most_finite(x);
          flag = !is_e5m2 && kinds != 0 && (kinds & has_nan) == 0 ? infinite_scale : 0;
          infinity_code = is_e5m2 ? 0x7c : (kinds & has_nan) == 0 ? 0x7f : 0xff;
        }
        const float scale = fmaxf(__fmul_rn(__uint_as_float(most), reciprocal), least_scale);
        store_scale<uint32_t>(scales_, chunk, __float_as_uint(scale) | flag);
        inverse = __frcp_rn(scale);
      } else if (coding_.scale == Scale::e8m0) {
        const int exponent = static_cast<int>(most >> 23) - format.largest_exponent;
        const uint32_t byte = finite ? static_cast<uint32_t>(max(exponent, 0)) : e8m0_nan;
        store_scale<uint8_t>(scales_, chunk, byte);
        inverse = finite ? __uint_as_float((254 - byte) << 23) : 0;
      } else {
        const SmallFloat e4m3 = small_float(Element::e4m3);
        const float sixth = __fmul_rn(__uint_as_float(most), 1 / 6.0f);
        const float relative = __fmul_rn(sixth, __frcp_rn(block_scale));
        const uint32_t byte = finite ? magnitude_code(e4m3, fminf(relative, e4m3.largest)) : e4m3_nan;
        store_scale<uint8_t>(scales_, chunk, byte);
        const float scale = __fmul_rn(magnitude_value(e4m3, byte), block_scale);
        inverse = finite && scale != 0 ? __frcp_rn(scale) : 0;
      }
      if constexpr (bits == 8 && device::has_float8) {
        if (!coding_.is_stochastic && __all_sync(device::all_lanes, finite)) {
          const auto pair = [&](uint32_t i) {
            const float a = __fmul_rn(x.value[i], inverse), b = __fmul_rn(x.value[i + 1], inverse);
            return is_e5m2 ? device::e5m2s_of(a, b) : device::e4m3s_of(a, b);
          };
          reinterpret_cast<uint2*>(codes_)[chunk] = {pair(0) | pair(2) << 16, pair(4) | pair(6) << 16};
          continue;
        }
      }
      RandomWords random = {};
      if (coding_.is_stochastic) random = random_words(context_, coding_.seed, chunk * chunk_elems);
      uint32_t codes[chunk_elems];
#pragma unroll
      for (uint32_t i = 0; i < chunk_elems; ++i) {
        const float magnitude = fminf(__fmul_rn(fabsf(x.value[i]), inverse), format.largest);
        const uint32_t sign = __float_as_uint(x.value[i]) >> 31 << (bits - 1);
        codes[i] = sign | (coding_.is_stochastic ? magnitude_code(format, magnitude, random_number(random, i))
                                                 : magnitude_code(format, magnitude));
        if (!finite && !is_finite(x.value[i])) codes[i] = float8_of(kind_of(x.value[i]), infinity_code, sign);
        if (!finite && coding_.scale != Scale::float32) codes[i] = 0;
      }
      store_codes<bits, false>(chunk, codes);
    }
  }

  // What values are not finite, with a bit each.
  enum : uint32_t { has_nan = 1, has_infinity = 2, has_minus_infinity = 4 };

  __device__ __forceinline__ static uint32_t kind_of(float value) {
    const uint32_t magnitude = magnitude_bits(value);
    if (magnitude < infinity_bits) return 0;
    return magnitude > infinity_bits ? has_nan : value > 0 ? has_infinity : has_minus_infinity;
  }
  __device__ __forceinline__ uint32_t kinds_in_group(const Chunk<Dtype>& x) const {
    uint32_t kinds = 0;
#pragma unroll
    for (uint32_t i = 0; i < chunk_elems; ++i) kinds |= kind_of(x.value[i]);
#pragma unroll 1
    for (uint32_t step = 1; step < group_lanes_; step *= 2)
      kinds |= __shfl_xor_sync(device::all_lanes, kinds, static_cast<int>(step));
    return kinds;
  }
  // The largest bits of a finite magnitude of the group.
  __device__ __forceinline__ uint32_t most_finite(const Chunk<Dtype>& x) const {
    uint32_t most = 0;
#pragma unroll
    for (uint32_t i = 0; i < chunk_elems; ++i)
      if (is_finite(x.value[i])) most = max(most, magnitude_bits(x.value[i]));
    return most_of_lanes(most, group_lanes_);
  }
  // What the special code of the group means. Corrects the largest magnitude of the group.
  __device__ __forceinline__ uint32_t special_kind(const Chunk<Dtype>& x, uint32_t& most) const {
    const uint32_t kinds = kinds_in_group(x);
    most = most_finite(x);
    return kinds == 0                    ? special_is_unused
           : kinds == has_infinity       ? special_is_infinity
           : kinds == has_minus_infinity ? special_is_minus_infinity
                                         : special_is_nan;
  }
  // infinity_code: 0xff if infinities become NaN.
  __device__ __forceinline__ static uint32_t float8_of(uint32_t kind, uint32_t infinity_code, uint32_t sign) {
    return kind == has_nan || infinity_code == 0xff ? 0x7f : infinity_code | sign;
  }

  // The bits of a bfloat16 scale that is not below p.
  __device__ __forceinline__ static uint32_t scale_bits(float p, bool special, uint32_t kind) {
    const uint32_t bits = min(max((__float_as_uint(p) + 0xffff) >> 16, 0x0080u), 0x7f7fu);
    return special ? min((bits + 3) & ~3u, 0x7f7cu) | kind | special_scale : bits;
  }
  __device__ __forceinline__ static float inverse_of(uint32_t bits) {
    return __frcp_rn(__uint_as_float((bits & special_scale) != 0 ? (bits & 0x7ffc) << 16 : bits << 16));
  }

  // nvfp4: stores the scale of the block, and returns it.
  __device__ __forceinline__ float store_block_scale() const {
    uint32_t most = 0;
#pragma unroll 1
    for (uint32_t chunk = lane_; chunk < chunks; chunk += 32) {
      const Chunk<Dtype> x = Chunk<Dtype>::load(values_, chunk);
#pragma unroll
      for (uint32_t i = 0; i < chunk_elems; ++i)
        if (is_finite(x.value[i])) most = max(most, magnitude_bits(x.value[i]));
    }
    most = __reduce_max_sync(device::all_lanes, most);
    const float scale = fmaxf(__fdiv_rn(__uint_as_float(most), 448 * 6), least_block_scale);
    if (lane_ == 0) *reinterpret_cast<uint4*>(second_scales_) = {__float_as_uint(scale), 0, 0, 0};
    return scale;
  }

  // One lane of each group stores a number of the group.
  template <typename Number>
  __device__ __forceinline__ void store_scale(char* to, uint32_t chunk, uint32_t number) const {
    if (chunk % group_lanes_ == 0)
      reinterpret_cast<Number*>(to)[chunk * chunk_elems / coding_.group] = static_cast<Number>(number);
  }

  // Rounds values[i] * inverse, at most `most`, to integers. Only their low bits are valid.
  __device__ __forceinline__ void round(const float* values, uint32_t chunk, float inverse, int least, int most,
                                        uint32_t* codes) const {
    if (!coding_.is_stochastic) {
#pragma unroll
      for (uint32_t i = 0; i < chunk_elems; ++i) codes[i] = __float_as_uint(__fmaf_rn(values[i], inverse, to_integer));
      return;
    }
    const RandomWords random = random_words(context_, coding_.seed, chunk * chunk_elems);
#pragma unroll
    for (uint32_t i = 0; i < chunk_elems; ++i) {
      const float quotient = __fmul_rn(values[i], inverse);
      const uint32_t parts = __float_as_uint(__fmaf_rn(quotient, 1 << random_bits, to_integer)) - to_integer_bits;
      const int rounded = static_cast<int>(parts + random_number(random, i)) >> random_bits;
      codes[i] = static_cast<uint32_t>(min(max(rounded, least), most));
    }
  }

  template <uint32_t bits, bool in_planes>
  __device__ __forceinline__ void store_codes(uint32_t chunk, const uint32_t* codes) const {
    if constexpr (bits == 8) {
      reinterpret_cast<uint2*>(codes_)[chunk] = {packed<8>(codes, 4), packed<8>(codes + 4, 4)};
    } else if constexpr (in_planes) {
      uint32_t upper[chunk_elems];
#pragma unroll
      for (uint32_t i = 0; i < chunk_elems; ++i) upper[i] = codes[i] >> 4;
      reinterpret_cast<uint32_t*>(codes_)[chunk] = packed<4>(codes, 8);
      reinterpret_cast<uint16_t*>(codes_ + elems / 2)[chunk] = static_cast<uint16_t>(packed<2>(upper, 8));
    } else if constexpr (bits == 6) {
      const uint32_t low = packed<6>(codes, 4) & 0xffffff, high = packed<6>(codes + 4, 4);
      auto* const to = reinterpret_cast<uint16_t*>(codes_) + 3 * chunk;
      to[0] = static_cast<uint16_t>(low);
      to[1] = static_cast<uint16_t>(low >> 16 | high << 8);
      to[2] = static_cast<uint16_t>(high >> 8);
    } else if constexpr (bits == 4) {
      reinterpret_cast<uint32_t*>(codes_)[chunk] = packed<4>(codes, 8);
    } else {
      reinterpret_cast<uint16_t*>(codes_)[chunk] = static_cast<uint16_t>(packed<2>(codes, 8));
    }
  }

  const Coding coding_;
  const device::BlockContext context_;
  const void* const values_;
  char* const codes_;
  char* const scales_;
  char* const second_scales_;
  const uint32_t group_lanes_;
  const int lane_;
};

}  // namespace narrowcast::codec::grouped
