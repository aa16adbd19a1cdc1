// The codec `uniform` of the tests: every value of a block becomes a whole number of `bits` bits, a multiple of the
// block's step. Fixed payloads, parameters, random numbers, a bounded error: what `window` has none of.
//
// Values are rounded to the nearest multiple after a random number from -dither / 2 to dither / 2 steps has been added,
// unless the dither is the least: with a dither of 1, a code's mean is the value.
//
// Payload: the largest finite magnitude of the block as a float, 12 bytes of zero, then the codes, `bits` bits each
// from the lowest bit of the first byte. Codes are two's complement. With top = 2^(bits-1): -top is NaN, top - 1 is
// infinity, 1 - top is -infinity, and any other code is a multiple of largest / (top - 2).
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "codec/host_codec.h"
#include "uniform/format.h"

namespace narrowcast::codec::uniform {
namespace {

constexpr size_t header_bytes = 16;

struct Codes {
  explicit Codes(const BlockType& type)
      : codec(type.codec), bits(static_cast<int>(get(codec, bits_field))), top(1 << (bits - 1)) {}
  int nan() const { return -top; }
  int infinity() const { return top - 1; }
  uint32_t mask() const { return (1u << bits) - 1; }
  double step(float largest) const { return static_cast<double>(largest) / (top - 2); }
  double dither() const {
    const auto dither = std::bit_cast<float>(get(codec, dither_field));
    return dither > no_dither ? dither : 0;
  }

  ncast_codec codec;
  int bits;
  int top;
};

float load(const BlockType& type, const uint8_t* values, uint32_t index) {
  const size_t bytes = ncast_dtype_bytes(type.dtype);
  uint32_t bits = 0;
  std::memcpy(reinterpret_cast<uint8_t*>(&bits) + 4 - bytes, values + index * bytes, bytes);
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Rounds to nearest, ties to even.
void store(const BlockType& type, double value, uint8_t* values, uint32_t index) {
  const auto single = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &single, sizeof bits);
  const size_t bytes = ncast_dtype_bytes(type.dtype);
  if (bytes == 2) {
    if (std::isnan(single))
      bits = 0x7fc00000;
    else
      bits += 0x7fff + (bits >> 16 & 1);
  }
  std::memcpy(values + index * bytes, reinterpret_cast<const uint8_t*>(&bits) + 4 - bytes, bytes);
}

size_t payload_bytes_of(const BlockType& type) {
  return header_bytes + size_t{type.block_elems()} * get(type.codec, bits_field) / 8;
}

// random: what is added to the value, in steps.
int code_of(const Codes& codes, float value, double step, double random) {
  if (std::isnan(value)) return codes.nan();
  if (std::isinf(value)) return value > 0 ? codes.infinity() : -codes.infinity();
  if (step == 0) return 0;
  // Without the limit, a random number could make the largest value infinite.
  return std::clamp(static_cast<int>(std::nearbyint(value / step + random)), 2 - codes.top, codes.top - 2);
}

size_t encode(const BlockType& type, const BlockContext& context, const uint8_t* values, uint8_t* payload) {
  float largest = 0;
  for (uint32_t i = 0; i < type.block_elems(); ++i)
    if (const float value = load(type, values, i); std::isfinite(value)) largest = std::max(largest, std::abs(value));
  std::memset(payload, 0, header_bytes);
  std::memcpy(payload, &largest, sizeof largest);
  const Codes codes(type);
  const double step = codes.step(largest);
  uint8_t* out = payload + header_bytes;
  uint32_t pending = 0;  // bits that do not fill a byte yet
  int pending_bits = 0;
  for (uint32_t i = 0; i < type.block_elems(); ++i) {
    const int code = code_of(codes, load(type, values, i), step, codes.dither() * random_number(context, i));
    pending |= (static_cast<uint32_t>(code) & codes.mask()) << pending_bits;
    for (pending_bits += codes.bits; pending_bits >= 8; pending_bits -= 8, pending >>= 8)
      *out++ = static_cast<uint8_t>(pending);
  }
  return payload_bytes_of(type);
}

bool decode(const BlockType& type, const uint8_t* payload, size_t payload_bytes, uint8_t* values) {
  if (payload_bytes != payload_bytes_of(type)) return false;
  float largest;
  std::memcpy(&largest, payload, sizeof largest);
  if (!std::isfinite(largest) || std::signbit(largest)) return false;
  const Codes codes(type);
  const double step = codes.step(largest);
  const uint8_t* in = payload + header_bytes;
  uint32_t pending = 0;
  int pending_bits = 0;
  for (uint32_t i = 0; i < type.block_elems(); ++i) {
    for (; pending_bits < codes.bits; pending_bits += 8) pending |= uint32_t{*in++} << pending_bits;
    auto code = static_cast<int>(pending & codes.mask());
    pending >>= codes.bits;
    pending_bits -= codes.bits;
    if (code >= codes.top) code -= 2 * codes.top;
    double value = code * step;
    if (code == codes.nan()) value = NAN;
    if (std::abs(code) == codes.infinity()) value = code > 0 ? INFINITY : -INFINITY;
    store(type, value, values, i);
  }
  return true;
}

// Half a step, half the dither, and the rounding to the value type.
double error_bound(const BlockType& type, double largest) {
  const int mantissa_bits = type.dtype == NCAST_BFLOAT16 ? 7 : 23;
  const double smallest = std::ldexp(1, -126 - mantissa_bits);
  const Codes codes(type);
  return codes.step(static_cast<float>(largest)) * (1 + codes.dither()) / 2 + std::ldexp(largest, -mantissa_bits - 1) +
         smallest;
}

}  // namespace

extern const HostCodec host;
const HostCodec host{
    .reference = {encode, decode},
    .fast = {encode, decode},
    .payload_bytes = payload_bytes_of,
    .error_bound = error_bound,
};

}  // namespace narrowcast::codec::uniform
