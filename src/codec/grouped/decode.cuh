// Decodes a block with a warp. The values are those of reference.cc, whatever the payload contains.
#pragma once

#include "chunk.cuh"
#include "chunk_floats.cuh"

namespace narrowcast::codec::grouped {

template <ncast_dtype Dtype>
class BlockDecoder {
 public:
  __device__ __forceinline__ BlockDecoder(const Coding& coding, const void* payload, void* values, int lane)
      : coding_(coding),
        values_(values),
        codes_(static_cast<const char*>(payload)),
        scales_(codes_ + coding.scales(elems)),
        second_scales_(codes_ + coding.second_scales(elems)),
        lane_(lane) {}

  // Returns false to all lanes if a scale is not valid.
  __device__ __forceinline__ bool decode() {
    bool valid = true;
    switch (coding_.element) {
      case Element::int8: valid = decode_integers<Element::int8>(); break;
      case Element::uint8: valid = decode_ranges(); break;
      case Element::int6: valid = decode_integers<Element::int6>(); break;
      case Element::int4: valid = decode_integers<Element::int4>(); break;
      case Element::int2: valid = decode_integers<Element::int2>(); break;
      case Element::e4m3:
      case Element::e5m2: valid = decode_floats<8>(); break;
      case Element::e2m3:
      case Element::e3m2: valid = decode_floats<6>(); break;
      default: valid = decode_floats<4>();
    }
    return __all_sync(device::all_lanes, valid);
  }

 private:
  static constexpr uint32_t elems = block_bytes * 8 / (Dtype == NCAST_FLOAT32 ? 32 : 16);
  static constexpr uint32_t chunks = elems / chunk_elems;
  static constexpr float largest_float = largest_of_type(Dtype);

  template <Element element>
  __device__ __forceinline__ bool decode_integers() {
    constexpr uint32_t half = largest_code(element) + 1;
    const uint32_t rotate = coding_.rotate;
    const float factor = rotation_factor(rotate);
    bool valid = true;
#pragma unroll 1
    for (uint32_t chunk = lane_; chunk < chunks; chunk += 32) {
      const uint32_t bits = scale<uint16_t>(scales_, chunk);
      const bool special = (bits & special_scale) != 0;
      valid = valid && is_normal(bits << 16);
      const float scale = __uint_as_float(special ? (bits & 0x7ffc) << 16 : bits << 16);
      uint32_t codes[chunk_elems];
      load_codes<bits_of(element), element == Element::int6>(chunk, codes);
      Chunk<Dtype> x;
#pragma unroll
      for (uint32_t i = 0; i < chunk_elems; ++i) x.value[i] = __fmul_rn(signed_number(codes[i], half), scale);
      float most = __fmul_rn(half, scale);
      if (special) {
        if (most > largest_float) x.limit();
        set_special(x, bits, codes, half);
      }
      if (rotate > 1) {
        Chunk<Dtype> rotated = x;
        rotated.rotate(rotate, factor, lane_);
        if (!special) x = rotated;
        most = __uint_as_float(most_of_lanes(__float_as_uint(most), rotate / chunk_elems));
      }
      if (!special && !(__fmul_rn(most, rotate) <= largest_float)) x.limit();
      x.store(values_, chunk);
    }
    return valid;
  }

  __device__ __forceinline__ bool decode_ranges() {
    bool valid = true;
#pragma unroll 1
    for (uint32_t chunk = lane_; chunk < chunks; chunk += 32) {
      const uint32_t bits = scale<uint16_t>(scales_, chunk);
      const bool special = (bits & special_scale) != 0;
      const float scale = __uint_as_float(special ? (bits & 0x7ffc) << 16 : bits << 16);
      const float zero = zero_of(chunk);
      valid = valid && is_normal(bits << 16) && is_finite(zero);
      uint32_t codes[chunk_elems];
      load_codes<8, false>(chunk, codes);
      Chunk<Dtype> x;
#pragma unroll
      for (uint32_t i = 0; i < chunk_elems; ++i) x.value[i] = __fmaf_rn(number(codes[i]), scale, zero);
      if (!(__fadd_rn(__fmul_rn(255, scale), fabsf(zero)) <= largest_float)) x.limit();
      if (special) set_special(x, bits, codes, 255);
      x.store(values_, chunk);
    }
    return valid;
  }

  template <uint32_t bits>
  __device__ __forceinline__ bool decode_floats() {
    const SmallFloat format = small_float(coding_.element);
    const bool is_e5m2 = coding_.element == Element::e5m2;
    const float bias = bias_factor(format);
    const int shift = 23 - format.mantissa_bits;
    const uint32_t block_scale = coding_.scale == Scale::e4m3 ? *reinterpret_cast<const uint32_t*>(second_scales_) : 0;
    bool valid = coding_.scale != Scale::e4m3 || (is_normal(block_scale) && block_scale <= infinity_bits);
#pragma unroll 1
    for (uint32_t chunk = lane_; chunk < chunks; chunk += 32) {
      float scale;
      bool infinite = false;  // NaN elements mean infinity
      if (coding_.scale == Scale::float32) {
        const uint32_t number = this->scale<uint32_t>(scales_, chunk);
        infinite = (number & infinite_scale) != 0;
        valid = valid && is_normal(number) && !(infinite && is_e5m2);
        scale = __uint_as_float(number & magnitude_mask);
      } else {
        const uint32_t byte = this->scale<uint8_t>(scales_, chunk);
        if (coding_.scale == Scale::e8m0) {
          scale = __uint_as_float(byte == e8m0_nan ? magnitude_mask : byte == 0 ? 0x00400000 : byte << 23);
        } else {
          valid = valid && byte <= e4m3_nan;
          const float e4m3 = magnitude_value(small_float(Element::e4m3), byte);
          scale = byte == e4m3_nan ? __uint_as_float(magnitude_mask) : __fmul_rn(e4m3, __uint_as_float(block_scale));
        }
      }
      uint32_t codes[chunk_elems];
      load_codes<bits, false>(chunk, codes);
      constexpr uint32_t magnitude = (1u << (bits - 1)) - 1;
      Chunk<Dtype> x;
      bool finite = true;
#pragma unroll
      for (uint32_t i = 0; i < chunk_elems; ++i) {
        const uint32_t placed = (codes[i] & magnitude) << shift | codes[i] >> (bits - 1) << 31;
        x.value[i] = __fmul_rn(__fmul_rn(__uint_as_float(placed), bias), scale);
        finite = finite && (codes[i] & magnitude) <= format.largest_code;
      }
      if (!(__fmul_rn(format.largest, scale) <= largest_float)) x.limit();
      if (bits == 8 && !finite) {
#pragma unroll
        for (uint32_t i = 0; i < chunk_elems; ++i) {
          const uint32_t code = codes[i] & magnitude;
          if (code <= format.largest_code) continue;
          const bool is_infinity = infinite || (is_e5m2 && code == 0x7c);
          x.value[i] = __uint_as_float(is_infinity ? infinity_bits | codes[i] >> 7 << 31 : magnitude_mask);
        }
      }
      x.store(values_, chunk);
    }
    return valid;
  }

  // Whether a float is neither 0, subnormal, infinite nor NaN.
  __device__ __forceinline__ static bool is_normal(uint32_t bits) {
    return (bits & infinity_bits) != 0 && (bits & infinity_bits) != infinity_bits;
  }

  template <typename Number>
  __device__ __forceinline__ uint32_t scale(const char* from, uint32_t chunk) const {
    return reinterpret_cast<const Number*>(from)[chunk * chunk_elems / coding_.group];
  }
  __device__ __forceinline__ float zero_of(uint32_t chunk) const {
    if constexpr (Dtype == NCAST_FLOAT32) return __uint_as_float(scale<uint32_t>(second_scales_, chunk));
    const uint32_t bits = scale<uint16_t>(second_scales_, chunk);
    return Dtype == NCAST_BFLOAT16 ? __uint_as_float(bits << 16) : device::floats_of_halves(bits).x;
  }

  // The float of an integer below 2^23, and of a code in two's complement whose least number is -half.
  __device__ __forceinline__ static float number(uint32_t code) {
    return __fadd_rn(__uint_as_float(0x4b000000 | code), -0x1p23f);
  }
  __device__ __forceinline__ static float signed_number(uint32_t code, uint32_t half) {
    return __fadd_rn(__uint_as_float(0x4b000000 | (code ^ half)), -(0x1p23f + static_cast<float>(half)));
  }

  // Values of a special group that are not finite.
  __device__ __forceinline__ static void set_special(Chunk<Dtype>& x, uint32_t bits, const uint32_t* codes,
                                                     uint32_t special_code) {
    const uint32_t kind = bits & 3;
    if (kind == special_is_unused) return;
    const uint32_t value = kind == special_is_nan        ? magnitude_mask
                           : kind == special_is_infinity ? infinity_bits
                                                         : infinity_bits | 0x80000000;
#pragma unroll
    for (uint32_t i = 0; i < chunk_elems; ++i)
      if (codes[i] == special_code) x.value[i] = __uint_as_float(value);
  }

  template <uint32_t bits, bool in_planes>
  __device__ __forceinline__ void load_codes(uint32_t chunk, uint32_t* codes) const {
    if constexpr (bits == 8) {
      const uint2 words = reinterpret_cast<const uint2*>(codes_)[chunk];
#pragma unroll
      for (uint32_t i = 0; i < chunk_elems; ++i) codes[i] = (i < 4 ? words.x : words.y) >> i % 4 * 8 & 0xff;
    } else if constexpr (in_planes) {
      const uint32_t low = reinterpret_cast<const uint32_t*>(codes_)[chunk];
      const uint32_t high = reinterpret_cast<const uint16_t*>(codes_ + elems / 2)[chunk];
#pragma unroll
      for (uint32_t i = 0; i < chunk_elems; ++i) codes[i] = (low >> i * 4 & 15) | (high >> i * 2 & 3) << 4;
    } else if constexpr (bits == 6) {
      const auto* const from = reinterpret_cast<const uint16_t*>(codes_) + 3 * chunk;
      const uint32_t middle = from[1], low = from[0] | middle << 16, high = middle >> 8 | uint32_t{from[2]} << 8;
#pragma unroll
      for (uint32_t i = 0; i < chunk_elems; ++i) codes[i] = (i < 4 ? low : high) >> i % 4 * 6 & 0x3f;
    } else {
      const uint32_t word = bits == 4 ? reinterpret_cast<const uint32_t*>(codes_)[chunk]
                                      : reinterpret_cast<const uint16_t*>(codes_)[chunk];
#pragma unroll
      for (uint32_t i = 0; i < chunk_elems; ++i) codes[i] = word >> i * bits & ((1u << bits) - 1);
    }
  }

  const Coding coding_;
  void* const values_;
  const char* const codes_;
  const char* const scales_;
  const char* const second_scales_;
  const int lane_;
};

}  // namespace narrowcast::codec::grouped
