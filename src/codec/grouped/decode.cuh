// Decodes a block with a warp. The values are those of reference.cc, whatever the payload contains.
#pragma once

#include "codes.cuh"
#include "elements.cuh"
#include "run.cuh"

namespace narrowcast::codec::grouped {

template <ncast_dtype Dtype>
class BlockDecoder {
 public:
  __device__ __forceinline__ BlockDecoder(const Coding& coding, const void* payload, void* values, int lane)
      : coding_(coding),
        values_(values),
        codes_(static_cast<const char*>(payload)),
        second_scales_(codes_ + coding.second_scales(elems)),
        group_shift_(device::highest_bit(coding.group / run_elems)),
        swap_(Run<Dtype>::swap_of(lane, coding.rotate)),
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
  static constexpr uint32_t elems = Run<Dtype>::elems;
  static constexpr float largest_float = largest_of_type(Dtype);

  template <Element element>
  __device__ __forceinline__ bool decode_integers() {
    constexpr uint32_t half = largest_code(element) + 1;
    const uint32_t rotate = coding_.rotate;
    const float factor = rotation_factor(rotate);
    bool valid = true;
#pragma unroll 1
    for (uint32_t run = lane_; run < Run<Dtype>::count; run += 32) {
      const uint32_t bits = scale<uint16_t, bits_of(element)>(run);
      const bool special = (bits & special_scale) != 0;
      valid = valid && is_normal(bits << 16);
      const float scale = __uint_as_float(special ? (bits & 0x7ffc) << 16 : bits << 16);
      Run<Dtype> x{.swap = swap_};
      load_integers<elems, bits_of(element), element == Element::int6, half>(codes_, run, swap_, x.value);
#pragma unroll
      for (float& value : x.value) value = __fmul_rn(value, scale);
      float most = __fmul_rn(half, scale);
      if (rotate > 1) {
        x.rotate(rotate, factor, lane_);
        most = __fmul_rn(__uint_as_float(most_of_lanes(__float_as_uint(most), rotate / run_elems)), rotate);
      }
      if (!(most <= largest_float)) x.limit();
      x.store(values_, run);
      if (special) {
        for_each_value(run, [&](uint32_t index) {
          const uint32_t code = load_code<elems, bits_of(element), element == Element::int6>(codes_, index);
          return is_special_code(bits, code == half) ? special_value(bits)
                                                     : Run<Dtype>::limited(__fmul_rn(signed_number(code, half), scale));
        });
      }
    }
    return valid;
  }

  __device__ __forceinline__ bool decode_ranges() {
    bool valid = true;
#pragma unroll 1
    for (uint32_t run = lane_; run < Run<Dtype>::count; run += 32) {
      const uint32_t bits = scale<uint16_t, 8>(run);
      const bool special = (bits & special_scale) != 0;
      const float scale = __uint_as_float(special ? (bits & 0x7ffc) << 16 : bits << 16);
      const float zero = zero_of(run);
      valid = valid && is_normal(bits << 16) && is_finite(zero);
      Run<Dtype> x{.swap = swap_};
      load_integers<elems, 8, false, 0>(codes_, run, swap_, x.value);
#pragma unroll
      for (float& value : x.value) value = __fmaf_rn(value, scale, zero);
      if (!(__fmaf_rn(255, scale, fabsf(zero)) <= largest_float)) x.limit();
      x.store(values_, run);
      if (special) {
        for_each_value(run, [&](uint32_t index) {
          const uint32_t code = load_code<elems, 8, false>(codes_, index);
          return is_special_code(bits, code == 255) ? special_value(bits)
                                                    : Run<Dtype>::limited(__fmaf_rn(number(code), scale, zero));
        });
      }
    }
    return valid;
  }

  template <uint32_t bits>
  __device__ __forceinline__ bool decode_floats() {
    const SmallFloat format = format_of<bits>(coding_.element);
    const bool is_e5m2 = coding_.element == Element::e5m2;
    const float bias = bias_factor(format);
    const int shift = 23 - format.mantissa_bits;
    const uint32_t block_scale = coding_.scale == Scale::e4m3 ? *reinterpret_cast<const uint32_t*>(second_scales_) : 0;
    bool valid = coding_.scale != Scale::e4m3 || (is_normal(block_scale) && block_scale <= infinity_bits);
#pragma unroll 1
    for (uint32_t run = lane_; run < Run<Dtype>::count; run += 32) {
      float scale;
      bool infinite = false;  // NaN elements mean infinity
      if (coding_.scale == Scale::float32) {
        const uint32_t number = this->template scale<uint32_t, bits>(run);
        infinite = (number & infinite_scale) != 0;
        valid = valid && is_normal(number) && !(infinite && is_e5m2);
        scale = __uint_as_float(number & magnitude_mask);
      } else {
        const uint32_t byte = this->template scale<uint8_t, bits>(run);
        if (coding_.scale == Scale::e8m0) {
          scale = __uint_as_float(byte == e8m0_nan ? magnitude_mask : byte == 0 ? 0x00400000 : byte << 23);
        } else {
          valid = valid && byte <= e4m3_nan;
          const float e4m3 = magnitude_value(small_float(Element::e4m3), byte);
          scale = byte == e4m3_nan ? __uint_as_float(magnitude_mask) : __fmul_rn(e4m3, __uint_as_float(block_scale));
        }
      }
      uint32_t codes[run_elems];
      load_codes<elems, bits, false>(codes_, run, swap_, codes);
      bool finite = true;
      constexpr uint32_t magnitude = (1u << (bits - 1)) - 1;
      Run<Dtype> x{.swap = swap_};
#pragma unroll
      for (uint32_t i = 0; i < run_elems; ++i) {
        const uint32_t placed = (codes[i] & magnitude) << shift | codes[i] >> (bits - 1) << 31;
        x.value[i] = __fmul_rn(__fmul_rn(__uint_as_float(placed), bias), scale);
        if (bits == 8) finite = finite && (codes[i] & magnitude) <= format.largest_code;
      }
      if (!(__fmul_rn(format.largest, scale) <= largest_float)) x.limit();
      x.store(values_, run);
      if constexpr (bits == 8) {
        if (finite) continue;
        for_each_value(run, [&](uint32_t index) {
          const uint32_t code = load_code<elems, 8, false>(codes_, index), sign = code >> 7 << 31;
          if ((code & magnitude) <= format.largest_code)
            return Run<Dtype>::limited(
                __fmul_rn(__fmul_rn(__uint_as_float((code & magnitude) << shift | sign), bias), scale));
          const bool is_infinity = infinite || (is_e5m2 && (code & magnitude) == 0x7c);
          return __uint_as_float(is_infinity ? infinity_bits | sign : magnitude_mask);
        });
      }
    }
    return valid;
  }

  // The number of a group in the section after the codes, and in the one after that.
  template <typename Number, uint32_t bits>
  __device__ __forceinline__ uint32_t scale(uint32_t run) const {
    return reinterpret_cast<const Number*>(codes_ + elems * bits / 8)[run >> group_shift_];
  }
  template <typename Number>
  __device__ __forceinline__ uint32_t second_scale(uint32_t run) const {
    return reinterpret_cast<const Number*>(second_scales_)[run >> group_shift_];
  }
  __device__ __forceinline__ float zero_of(uint32_t run) const {
    if constexpr (Dtype == NCAST_FLOAT32) return __uint_as_float(second_scale<uint32_t>(run));
    const uint32_t bits = second_scale<uint16_t>(run);
    return Dtype == NCAST_BFLOAT16 ? __uint_as_float(bits << 16) : device::floats_of_halves(bits).x;
  }

  // The float of an integer below 2^23, and of a code in two's complement whose least number is -half.
  __device__ __forceinline__ static float number(uint32_t code) {
    return __fadd_rn(__uint_as_float(0x4b000000 | code), -0x1p23f);
  }
  __device__ __forceinline__ static float signed_number(uint32_t code, uint32_t half) {
    return __fadd_rn(__uint_as_float(0x4b000000 | (code ^ half)), -(0x1p23f + static_cast<float>(half)));
  }

  // Stores value_of(index in the block) for each value of a run.
  template <typename ValueOf>
  __device__ __forceinline__ void for_each_value(uint32_t run, ValueOf value_of) const {
#pragma unroll 1
    for (uint32_t index = run * run_elems; index < (run + 1) * run_elems; ++index)
      Run<Dtype>::store_value(values_, index, value_of(index));
  }

  // bits: the scale of a special group.
  __device__ __forceinline__ static bool is_special_code(uint32_t bits, bool is_code) {
    return is_code && (bits & 3) != special_is_unused;
  }
  __device__ __forceinline__ static float special_value(uint32_t bits) {
    const uint32_t kind = bits & 3;
    return __uint_as_float(kind == special_is_nan        ? magnitude_mask
                           : kind == special_is_infinity ? infinity_bits
                                                         : infinity_bits | 0x80000000);
  }

  const Coding coding_;
  void* const values_;
  const char* const codes_;
  const char* const second_scales_;
  const uint32_t group_shift_;
  const uint32_t swap_;
  const int lane_;
};

}  // namespace narrowcast::codec::grouped
