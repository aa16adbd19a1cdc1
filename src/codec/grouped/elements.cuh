// Small floats of a runtime format, in the registers of a thread; small_floats.h is the counterpart for the host.
#pragma once

#include "run.cuh"

namespace narrowcast::codec::grouped {

// The format of an element with so many bits, a constant if there is only one.
template <uint32_t bits>
__device__ __forceinline__ SmallFloat format_of(Element element) {
  return small_float(bits == 4 ? Element::e2m1 : element);
}

// The code of a magnitude that is at most the largest. Adding a power of two whose unit in the last place is the step
// of the format rounds to a multiple of this step, and the difference of the bits is their number.
__device__ __forceinline__ uint32_t magnitude_code(const SmallFloat& format, float magnitude) {
  const auto least = static_cast<uint32_t>(127 + format.least_exponent) << 23;
  const auto step_shift = static_cast<uint32_t>(23 - format.mantissa_bits);
  const uint32_t exponent = max(__float_as_uint(magnitude) & infinity_bits, least);
  const uint32_t added = exponent + (step_shift << 23);
  return __float_as_uint(__fadd_rn(magnitude, __uint_as_float(added))) - added + ((exponent - least) >> step_shift);
}
// The same, rounded at random: 2^-random_bits of a step are counted, and `random` is added to their number.
__device__ __forceinline__ uint32_t magnitude_code(const SmallFloat& format, float magnitude, uint32_t random) {
  const auto least = static_cast<uint32_t>(127 + format.least_exponent) << 23;
  const auto step_shift = static_cast<uint32_t>(23 - format.mantissa_bits);
  const uint32_t exponent = max(__float_as_uint(magnitude) & infinity_bits, least);
  const uint32_t added = exponent + ((step_shift - random_bits) << 23);
  const uint32_t parts = __float_as_uint(__fadd_rn(magnitude, __uint_as_float(added))) - added;
  return ((parts + random) >> random_bits) + ((exponent - least) >> step_shift);
}

// The value of a code with its sign, both in place in a float: bits that are one float32 with another bias.
__device__ __forceinline__ float bias_factor(const SmallFloat& format) {
  return __uint_as_float(static_cast<uint32_t>(253 + format.least_exponent) << 23);
}
__device__ __forceinline__ float magnitude_value(const SmallFloat& format, uint32_t code) {
  return __fmul_rn(__uint_as_float(code << (23 - format.mantissa_bits)), bias_factor(format));
}

}  // namespace narrowcast::codec::grouped
