// A block of `rate` on the GPU: one warp encodes or decodes it between two buffers in shared memory. A lane has every
// 32nd quad. reference.cc produces the same bytes.
#pragma once

#include <cstdint>
#include <type_traits>

#include "../../device/warp.cuh"
#include "format.h"

namespace narrowcast::codec::rate {

template <ncast_dtype Dtype>
class Block {
  static constexpr ValueType type = value_type(Dtype);
  static constexpr bool is_single = Dtype == NCAST_FLOAT32;
  using Unsigned = std::conditional_t<is_single, uint32_t, unsigned long long>;
  using Signed = std::conditional_t<is_single, int32_t, long long>;
  static constexpr uint32_t mantissa_bits = type.mantissa_bits(), quads = type.quads();
  static constexpr Unsigned magnitude_mask = ~Unsigned{0} >> 1;
  static constexpr Unsigned mantissa_mask = (Unsigned{1} << mantissa_bits) - 1;
  static constexpr Unsigned infinity = static_cast<Unsigned>(type.special_exponent()) << mantissa_bits;
  static constexpr Unsigned odd_digits = static_cast<Unsigned>(0xaaaaaaaaaaaaaaaa);

 public:
  __device__ static uint32_t encode(const void* values, void* payload, int lane, Rate rate) {
#pragma unroll 1
    for (uint32_t quad = lane; quad < quads; quad += 32) {
      Unsigned numbers[quad_elems];
      load(static_cast<const char*>(values) + quad * sizeof numbers, numbers);
      Writer writer(rate, static_cast<char*>(payload), quad);
      encode_quad(numbers, rate, writer);
      writer.finish();
    }
    __syncwarp();
    return rate.payload_bytes(quads);
  }

  __device__ static bool decode(const void* payload, uint32_t bytes, void* values, int lane, Rate rate) {
    if (bytes != rate.payload_bytes(quads)) return false;
#pragma unroll 1
    for (uint32_t quad = lane; quad < quads; quad += 32) {
      Unsigned numbers[quad_elems] = {};
      Reader reader(rate, static_cast<const char*>(payload), quad);
      decode_quad(reader, rate, numbers);
      store(static_cast<char*>(values) + quad * sizeof numbers, numbers);
    }
    return true;
  }

 private:
  // Writes the bits of a quad. Those after the last one are cut off.
  class Writer {
   public:
    __device__ __forceinline__ Writer(Rate rate, char* payload, uint32_t quad)
        : rate_(rate), payload_(payload), quad_(quad) {}
    __device__ __forceinline__ uint32_t written() const { return word_ * 32 + count_; }
    // At most 32 bits; none above `length`.
    __device__ __forceinline__ void put(uint32_t bits, uint32_t length) {
      pending_ |= bits << count_;
      count_ += length;
      if (count_ < 32) return;
      if (word_ < rate_.words()) put_word();
      if (word_ == rate_.words()) rest_ = pending_;
      ++word_;
      count_ -= 32;
      pending_ = __funnelshift_rc(bits, 0, length - count_);
    }
    // Quads of odd number are those of odd lanes, whose nibbles are in the bytes of the lanes before.
    __device__ __forceinline__ void finish() {
      for (; word_ < rate_.words(); ++word_, pending_ = 0) put_word();
      uint32_t rest = word_ > rate_.words() ? rest_ : pending_;
      if (rate_.has_half())
        reinterpret_cast<uint16_t*>(payload_ + rate_.halves(quads))[quad_] = static_cast<uint16_t>(rest);
      if (rate_.has_half()) rest >>= 16;
      if (rate_.has_byte()) payload_[rate_.bytes(quads) + quad_] = static_cast<char>(rest);
      if (rate_.has_byte()) rest >>= 8;
      if (rate_.has_nibble()) {
        rest &= 15;
        const uint32_t other = __shfl_xor_sync(device::all_lanes, rest, 1);
        if (quad_ % 2 == 0) payload_[rate_.nibbles(quads) + quad_ / 2] = static_cast<char>(rest | other << 4);
      }
    }

   private:
    __device__ __forceinline__ void put_word() {
      reinterpret_cast<uint32_t*>(payload_)[word_ * quads + quad_] = pending_;
    }
    const Rate rate_;
    char* const payload_;
    const uint32_t quad_;
    uint32_t word_ = 0, pending_ = 0, count_ = 0;
    uint32_t rest_ = 0;  // the word after the last whole one, if it is full
  };

  // Reads the bits of a quad, and zeros after them.
  class Reader {
   public:
    __device__ __forceinline__ Reader(Rate rate, const char* payload, uint32_t quad)
        : rate_(rate), payload_(payload), quad_(quad), low_(word(0)), high_(word(1)) {}
    __device__ __forceinline__ uint32_t peek() const { return __funnelshift_r(low_, high_, count_); }
    // At most 32 bits.
    __device__ __forceinline__ void skip(uint32_t length) {
      count_ += length;
      if (count_ < 32) return;
      count_ -= 32;
      low_ = high_;
      high_ = word(++word_ + 1);
    }

   private:
    __device__ __forceinline__ uint32_t word(uint32_t number) const {
      if (number < rate_.words()) return reinterpret_cast<const uint32_t*>(payload_)[number * quads + quad_];
      if (number > rate_.words()) return 0;
      const auto* const bytes = reinterpret_cast<const uint8_t*>(payload_);
      uint32_t rest = 0;
      if (rate_.has_nibble()) rest = bytes[rate_.nibbles(quads) + quad_ / 2] >> quad_ % 2 * 4 & 15;
      if (rate_.has_byte()) rest = rest << 8 | bytes[rate_.bytes(quads) + quad_];
      if (rate_.has_half())
        rest = rest << 16 | reinterpret_cast<const uint16_t*>(payload_ + rate_.halves(quads))[quad_];
      return rest;
    }
    const Rate rate_;
    const char* const payload_;
    const uint32_t quad_;
    uint32_t word_ = 0, low_, high_, count_ = 0;
  };

  __device__ __forceinline__ static void encode_quad(Unsigned (&numbers)[quad_elems], Rate rate, Writer& to) {
    Unsigned most = 0, most_finite = 0;
    uint32_t kinds = 0;  // two bits for each value: finite, NaN, infinity, -infinity
#pragma unroll
    for (uint32_t i = 0; i < quad_elems; ++i) {
      const Unsigned magnitude = numbers[i] & magnitude_mask;
      most = max(most, magnitude);
      if (magnitude < infinity)
        most_finite = max(most_finite, magnitude);
      else
        kinds |= (magnitude > infinity ? 1u : numbers[i] == infinity ? 2u : 3u) << 2 * i;
    }
    if (most == 0) return;
    const uint32_t exponent = max(static_cast<uint32_t>(most_finite >> mantissa_bits), 1u);
#pragma unroll
    for (Unsigned& number : numbers) {
      const auto own = static_cast<uint32_t>((number & magnitude_mask) >> mantissa_bits);
      const Unsigned mantissa = (number & mantissa_mask) | static_cast<Unsigned>(own != 0) << mantissa_bits;
      const uint32_t shift = min(exponent - max(own, 1u), type.bits - 1);
      const Unsigned sign = 0 - (number >> (type.bits - 1));
      number = ((mantissa << type.mantissa_shift() >> shift) ^ sign) - sign;
    }
    if (kinds != 0) return encode_special(numbers, kinds, exponent, rate.special_bits(type), to);
    to.put(exponent, type.exponent_bits);
    transform(numbers);
#pragma unroll
    for (Unsigned& number : numbers) number = (number + odd_digits) ^ odd_digits;
    uint32_t active = 0;  // numbers that have had a one
#pragma unroll 1
    for (uint32_t left = type.bits; left != 0 && to.written() < rate.quad_bits(); --left) {
      uint32_t plane = 0;
#pragma unroll
      for (uint32_t i = 0; i < quad_elems; ++i) {
        plane |= static_cast<uint32_t>(numbers[i] >> (type.bits - 1)) << i;
        numbers[i] <<= 1;
      }
      uint32_t bits = plane & ((1u << active) - 1), length = active;
#pragma unroll 1
      while (active < quad_elems) {
        const uint32_t rest = plane >> active;
        if (rest == 0) {
          ++length;
          break;
        }
        const uint32_t zeros = __ffs(rest) - 1;
        active += zeros + 1;
        // A one, the zeros, and the one that ends them, unless it is that of the last number.
        bits |= (active < quad_elems ? 1 | 2u << zeros : 1) << length;
        length += zeros + (active < quad_elems ? 2 : 1);
      }
      to.put(bits, length);
    }
  }
  __device__ __forceinline__ static void encode_special(const Unsigned (&numbers)[quad_elems], uint32_t kinds,
                                                        uint32_t exponent, uint32_t each, Writer& to) {
    to.put(type.special_exponent(), type.exponent_bits);
    if (each == 0) return;
    to.put(exponent, type.exponent_bits);
    const uint32_t top = 1u << (each - 1), shift = type.bits - each;
#pragma unroll
    for (uint32_t i = 0; i < quad_elems; ++i) {
      const auto rounded = static_cast<Signed>(numbers[i] + (Unsigned{1} << (shift - 1)));
      const uint32_t kind = kinds >> 2 * i & 3;
      const uint32_t code = kind == 0   ? static_cast<uint32_t>(rounded >> shift)
                            : kind == 1 ? top
                                        : top + (kind == 2 ? -1 : 1);
      to.put(code & (2 * top - 1), each);
    }
  }

  // numbers: 0.
  __device__ __forceinline__ static void decode_quad(Reader& from, Rate rate, Unsigned (&numbers)[quad_elems]) {
    const uint32_t exponent = from.peek() & type.special_exponent();
    if (exponent == 0) return;
    from.skip(type.exponent_bits);
    if (exponent == type.special_exponent()) return decode_special(from, rate.special_bits(type), numbers);
    uint32_t active = 0, left = type.bits, known = rate.quad_bits() - type.exponent_bits;
#pragma unroll 1
    for (; left != 0 && known != 0; --left) {
      const uint32_t bits = from.peek();
      uint32_t plane = bits & ((1u << active) - 1), length = active;
#pragma unroll 1
      while (active < quad_elems) {
        if ((bits >> length++ & 1) == 0) break;
        const uint32_t zeros = min(static_cast<uint32_t>(__ffs(bits >> length)) - 1, quad_elems - 1 - active);
        active += zeros;
        length += zeros + (active < quad_elems - 1 ? 1 : 0);
        if (length > known) break;  // the run does not end within the string
        plane |= 1u << active++;
      }
#pragma unroll
      for (uint32_t i = 0; i < quad_elems; ++i) numbers[i] = numbers[i] << 1 | (plane >> i & 1);
      length = min(length, known);
      known -= length;
      from.skip(length);
    }
#pragma unroll
    for (Unsigned& number : numbers) {
      number <<= left;
      number = (number ^ odd_digits) - odd_digits;
    }
    inverse_transform(numbers);
#pragma unroll
    for (Unsigned& number : numbers) number = value_of(number, exponent);
  }
  __device__ __forceinline__ static void decode_special(Reader& from, uint32_t each, Unsigned (&values)[quad_elems]) {
#pragma unroll
    for (Unsigned& value : values) value = magnitude_mask;
    if (each == 0) return;
    const uint32_t exponent = min(max(from.peek() & type.special_exponent(), 1u), type.special_exponent() - 1);
    from.skip(type.exponent_bits);
    const uint32_t top = 1u << (each - 1);
#pragma unroll
    for (Unsigned& value : values) {
      const uint32_t code = from.peek() & (2 * top - 1);
      from.skip(each);
      if (code == top) continue;
      value = code == top - 1   ? infinity
              : code == top + 1 ? infinity | ~magnitude_mask
                                : value_of(static_cast<Unsigned>(code) << (type.bits - each), exponent);
    }
  }

  __device__ __forceinline__ static Unsigned half(Unsigned number) {
    return static_cast<Unsigned>(static_cast<Signed>(number) >> 1);
  }
  __device__ __forceinline__ static void transform(Unsigned (&numbers)[quad_elems]) {
    auto& [x, y, z, w] = numbers;
    x = half(x + w), w -= x;
    z = half(z + y), y -= z;
    x = half(x + z), z -= x;
    w = half(w + y), y -= w;
    w += half(y), y -= half(w);
  }
  __device__ __forceinline__ static void inverse_transform(Unsigned (&numbers)[quad_elems]) {
    auto& [x, y, z, w] = numbers;
    y += half(w), w -= half(y);
    y += w, w = 2 * w - y;
    z += x, x = 2 * x - z;
    y += z, z = 2 * z - y;
    w += x, x = 2 * x - w;
  }

  // The bits of a value, which is at most the largest finite one.
  __device__ __forceinline__ static Unsigned value_of(Unsigned number, uint32_t exponent) {
    const Unsigned power = static_cast<Unsigned>(exponent) << mantissa_bits;
    Unsigned bits;
    if constexpr (is_single) {
      const float unit = __fmul_rn(static_cast<float>(static_cast<Signed>(number)), 0x1p-29f);
      bits = __float_as_uint(__fmul_rn(unit, __uint_as_float(power)));
    } else {
      const double unit = __dmul_rn(static_cast<double>(static_cast<Signed>(number)), 0x1p-61);
      bits = __double_as_longlong(__dmul_rn(unit, __longlong_as_double(power)));
    }
    return (bits & magnitude_mask) == infinity ? bits - 1 : bits;
  }

  __device__ __forceinline__ static void load(const char* from, uint32_t (&bits)[quad_elems]) {
    const uint4 vector = *reinterpret_cast<const uint4*>(from);
    bits[0] = vector.x, bits[1] = vector.y, bits[2] = vector.z, bits[3] = vector.w;
  }
  __device__ __forceinline__ static void load(const char* from, unsigned long long (&bits)[quad_elems]) {
    const auto* const vectors = reinterpret_cast<const ulonglong2*>(from);
    const ulonglong2 first = vectors[0], second = vectors[1];
    bits[0] = first.x, bits[1] = first.y, bits[2] = second.x, bits[3] = second.y;
  }
  __device__ __forceinline__ static void store(char* to, const uint32_t (&bits)[quad_elems]) {
    *reinterpret_cast<uint4*>(to) = {bits[0], bits[1], bits[2], bits[3]};
  }
  __device__ __forceinline__ static void store(char* to, const unsigned long long (&bits)[quad_elems]) {
    auto* const vectors = reinterpret_cast<ulonglong2*>(to);
    vectors[0] = {bits[0], bits[1]};
    vectors[1] = {bits[2], bits[3]};
  }
};

}  // namespace narrowcast::codec::rate
