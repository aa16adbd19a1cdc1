// Adds the block coders of `rate` to the codec table.
#include <algorithm>
#include <cmath>

#include "codec/rate/block.h"
#include "codec/rate/format.h"

namespace narrowcast::codec::rate {
namespace {

// docs/format/rate.md derives it.
double error_bound(const BlockType& block, double largest) {
  const ValueType type = value_type(block.dtype);
  const auto bits = static_cast<int>(Rate(block.codec).bits);
  // Planes whose bits are all in the string, whatever they are.
  const int planes = (4 * bits - static_cast<int>(type.exponent_bits) - 3) / 4;
  // The exponent of a quad is at least that of the least normal number.
  const double magnitude = std::max(largest, std::ldexp(1, 2 - (1 << (type.exponent_bits - 1))));
  return magnitude * (std::ldexp(20, -planes) + std::ldexp(1, -static_cast<int>(type.mantissa_bits())));
}

}  // namespace

extern const HostCodec host;
const HostCodec host{
    .reference = reference,
    .fast = fast,
    .payload_bytes = [](const BlockType& type) -> size_t {
      return Rate(type.codec).payload_bytes(value_type(type.dtype).quads());
    },
    .error_bound = error_bound,
};

}  // namespace narrowcast::codec::rate
