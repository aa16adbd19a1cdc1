// The codecs that quantise groups of values, on the host.
#include <algorithm>
#include <cmath>

#include "codec/grouped/fast.h"
#include "codec/grouped/format.h"
#include "codec/grouped/reference.h"
#include "codec/grouped/small_floats.h"

namespace narrowcast::codec::grouped {
namespace {

// Half the largest distance of neighbouring codes of a group whose largest magnitude is `largest`, or, if that is more,
// what is cut off the largest value.
double largest_half_step(const Coding& coding, double largest) {
  // The most by which a bfloat16 scale is rounded up: in special groups it has five bits of mantissa.
  constexpr double rounded_up = 1 + 0x1p-5;
  if (is_integer(coding.element)) {
    if (coding.scale == Scale::bfloat16_and_zero) return largest / 254 * rounded_up;
    return largest / (2 * largest_code(coding.element)) * rounded_up;
  }
  const SmallFloat format = small_float(coding.element);
  const double half_step = std::ldexp(1, format.largest_exponent - format.mantissa_bits - 1);
  if (coding.scale == Scale::float32)
    return largest >= format.largest * least_scale ? largest * half_step / format.largest
                                                   : std::ldexp(largest, -format.mantissa_bits - 1);
  // The scale of a group is rounded by up to 1/16, which makes the last step wider, or cuts off less than half of it.
  if (coding.scale == Scale::e4m3) return largest * (17.0 / 16) * half_step / format.largest;
  return largest * std::ldexp(half_step, -format.largest_exponent);
}

// What the power of two of a group may cut off its largest value.
double most_cut_off(const Coding& coding, double largest) {
  if (coding.scale != Scale::e8m0) return 0;
  const SmallFloat format = small_float(coding.element);
  return largest * (1 - std::ldexp(format.largest, -format.largest_exponent - 1));
}

double error_bound(const BlockType& type, double largest) {
  const Coding coding = coding_of(type.codec);
  const int mantissa_bits = type.dtype == NCAST_BFLOAT16 ? 7 : type.dtype == NCAST_FLOAT16 ? 10 : 23;
  // Below a least scale the step no longer shrinks.
  const double least = coding.scale == Scale::e4m3 ? 0x1p-116 : 0x1p-127;
  // A rotation of h values makes a value up to sqrt(h) times as large, and adds up h errors / sqrt(h).
  const double loosened = coding.rotate > 1 ? coding.rotate * (1 + 0x1p-16) : 1;
  const double steps = coding.is_stochastic ? 2 : 1;
  const double error = std::max(steps * largest_half_step(coding, largest) * loosened, most_cut_off(coding, largest));
  // The arithmetic is float32. Then the value is rounded to its type.
  const double rounding = std::ldexp(largest + error, -mantissa_bits - 1) +
                          (type.dtype == NCAST_FLOAT16 ? 0x1p-25 : std::ldexp(1, -127 - mantissa_bits));
  return error * (1 + 0x1p-13) + steps * least * coding.rotate + rounding + largest * 0x1p-22 * coding.rotate;
}

}  // namespace

extern const HostCodec host;
const HostCodec host{
    .reference = reference,
    .fast = fast,
    .payload_bytes = [](const BlockType& type) -> size_t {
      return coding_of(type.codec).payload_bytes(type.block_elems());
    },
    .error_bound = error_bound,
};

}  // namespace narrowcast::codec::grouped
