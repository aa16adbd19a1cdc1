// Splits four adjacent values of a lane into exponents and the rest, sign and mantissa, and joins them again.
#pragma once

#include <cstdint>
#include <type_traits>

#include "../../device/lane_values.cuh"
#include "../../device/warp.cuh"
#include "format.h"

namespace narrowcast::codec::dense {

template <typename T>
__device__ __forceinline__ T load(const char* from) {
  return *reinterpret_cast<const T*>(from);
}
template <typename T>
__device__ __forceinline__ void store(char* to, const T& value) {
  *reinterpret_cast<T*>(to) = value;
}

// A field of each of the values that a 32-bit word contains. For float64, that is the upper word.
template <ValueType Type>
__host__ __device__ constexpr uint32_t in_each_value(uint32_t field) {
  return Type.value_bytes == 1 ? device::bytes4(field) : Type.value_bytes == 2 ? device::halves2(field) : field;
}
template <ValueType Type>
inline constexpr int word_mantissa_bits = Type.value_bytes == 8 ? 20 : Type.mantissa_bits();
template <ValueType Type>
inline constexpr uint32_t exponent_fields =
    in_each_value<Type>(static_cast<uint32_t>(Type.exponent_mask()) << word_mantissa_bits<Type>);

// The exponent of the value at an address.
template <ValueType Type>
__device__ __forceinline__ uint32_t exponent_of(const char* value) {
  using Head =
      std::conditional_t<Type.value_bytes == 1, uint8_t, std::conditional_t<Type.value_bytes == 2, uint16_t, uint32_t>>;
  constexpr int tail_bytes = Type.value_bytes == 8 ? 4 : 0;
  return load<Head>(value + tail_bytes) >> word_mantissa_bits<Type> & Type.exponent_mask();
}

// Four adjacent values of a lane. `word` counts from 0 to 7 in a group.
template <ValueType Type>
struct FourValues {
  uint32_t of[Type.value_bytes];  // as in memory

  __device__ __forceinline__ static FourValues load_from(const char* values, int group, int word, int lane) {
    FourValues four;
    const char* from = values + device::value_offset<Type.value_bytes>(group, 4 * word, lane);
    if constexpr (Type.value_bytes == 1) {
      four.of[0] = load<uint32_t>(from);
    } else if constexpr (Type.value_bytes == 2) {
      const uint2 two = load<uint2>(from);
      four.of[0] = two.x, four.of[1] = two.y;
    } else {
#pragma unroll
      for (int i = 0; i < Type.value_bytes / 4; ++i) {
        const uint4 vector = load<uint4>(
            values + device::value_offset<Type.value_bytes>(group, 4 * word + i * Type.vector_elems(), lane));
        four.of[4 * i] = vector.x, four.of[4 * i + 1] = vector.y;
        four.of[4 * i + 2] = vector.z, four.of[4 * i + 3] = vector.w;
      }
    }
    return four;
  }
  __device__ __forceinline__ void store_to(char* values, int group, int word, int lane) const {
    char* to = values + device::value_offset<Type.value_bytes>(group, 4 * word, lane);
    if constexpr (Type.value_bytes == 1) {
      store(to, of[0]);
    } else if constexpr (Type.value_bytes == 2) {
      store(to, uint2{of[0], of[1]});
    } else {
#pragma unroll
      for (int i = 0; i < Type.value_bytes / 4; ++i)
        store(values + device::value_offset<Type.value_bytes>(group, 4 * word + i * Type.vector_elems(), lane),
              uint4{of[4 * i], of[4 * i + 1], of[4 * i + 2], of[4 * i + 3]});
    }
  }

  __device__ __forceinline__ uint32_t exponent(int i) const {
    constexpr int bits = word_mantissa_bits<Type>;
    uint32_t head;
    if constexpr (Type.value_bytes == 1) head = of[0] >> (8 * i + bits);
    if constexpr (Type.value_bytes == 2) head = of[i / 2] >> (i % 2 * 16 + bits);
    if constexpr (Type.value_bytes == 4) head = of[i] >> bits;
    if constexpr (Type.value_bytes == 8) head = of[2 * i + 1] >> bits;
    return head & static_cast<uint32_t>(Type.exponent_mask());
  }
};

// Sign and mantissa of four values. They are stored and read byte by byte, from the lowest.
template <ValueType Type>
class FourRests {
  using Wide = std::conditional_t<Type.value_bytes == 8, uint64_t, uint32_t>;
  static constexpr int mantissa_bits = Type.mantissa_bits();
  static constexpr int count = Type.value_bytes >= 4 ? 4 : Type.value_bytes;  // registers, with 4, 2 or 1 values each
  static constexpr int sign_shift = Type.exponent_bits;  // from the sign's place to that in the rest

  static constexpr Wide fields(uint64_t field) {
    return Type.value_bytes >= 4 ? static_cast<Wide>(field)
                                 : static_cast<Wide>(in_each_value<Type>(static_cast<uint32_t>(field)));
  }
  static constexpr Wide mantissas = fields((uint64_t{1} << mantissa_bits) - 1);
  static constexpr Wide signs = fields(uint64_t{1} << mantissa_bits);

 public:
  __device__ __forceinline__ FourRests() {
#pragma unroll
    for (Wide& rest : of_) rest = 0;
  }
  // Without their lowest `trim` bits.
  __device__ __forceinline__ FourRests(const FourValues<Type>& four, uint32_t trim) {
    const Wide kept = Type.value_bytes >= 4 ? ~Wide{0} : fields(((uint64_t{2} << mantissa_bits) - 1) >> trim);
#pragma unroll
    for (int i = 0; i < count; ++i) {
      Wide value;
      if constexpr (Type.value_bytes == 8)
        value = static_cast<uint64_t>(four.of[2 * i + 1]) << 32 | four.of[2 * i];
      else
        value = four.of[i];
      of_[i] = ((value >> sign_shift & signs) | (value & mantissas)) >> trim & kept;
    }
  }
  // The lowest byte of each.
  __device__ __forceinline__ uint32_t lowest_bytes() const {
    if constexpr (Type.value_bytes == 1) return of_[0];
    if constexpr (Type.value_bytes == 2) return __byte_perm(of_[0], of_[1], 0x6420);
    const uint32_t first = __byte_perm(static_cast<uint32_t>(of_[0]), static_cast<uint32_t>(of_[1 % count]), 0x0040);
    const uint32_t second =
        __byte_perm(static_cast<uint32_t>(of_[2 % count]), static_cast<uint32_t>(of_[3 % count]), 0x0040);
    return __byte_perm(first, second, 0x5410);
  }
  __device__ __forceinline__ void drop_lowest_bytes() {
#pragma unroll
    for (int i = 0; i < count; ++i)
      of_[i] = Type.value_bytes == 1 ? 0 : Type.value_bytes == 2 ? of_[i] >> 8 & device::halves2(0xff) : of_[i] >> 8;
  }
  // Adds a byte to each, `shift` bits from the lowest.
  __device__ __forceinline__ void add_bytes(uint32_t bytes, uint32_t shift) {
    if constexpr (Type.value_bytes == 1) {
      of_[0] |= bytes << shift;
    } else if constexpr (Type.value_bytes == 2) {
      of_[0] |= __byte_perm(bytes, 0, 0x4140) << shift;
      of_[1] |= __byte_perm(bytes, 0, 0x4342) << shift;
    } else {
#pragma unroll
      for (int i = 0; i < count; ++i) of_[i] |= static_cast<Wide>(bytes >> 8 * i & 0xff) << shift;
    }
  }
  // Joins them with the exponents, a byte each, or for float64 an int8_t from `base`.
  __device__ __forceinline__ FourValues<Type> join(uint32_t exponents, uint32_t base) const {
    FourValues<Type> four;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const Wide rest = (of_[i] & signs) << sign_shift | (of_[i] & mantissas);
      if constexpr (Type.value_bytes == 1) {
        four.of[i] = rest | exponents << mantissa_bits;
      } else if constexpr (Type.value_bytes == 2) {
        four.of[i] = rest | __byte_perm(exponents, 0, i == 0 ? 0x4140 : 0x4342) << mantissa_bits;
      } else if constexpr (Type.value_bytes == 4) {
        four.of[i] = rest | (exponents >> 8 * i & 0xff) << mantissa_bits;
      } else {
        const uint32_t position = exponents >> 8 * i & 0xff;
        const uint32_t exponent = position == zero_position
                                      ? 0
                                      : (base + (position ^ 128) - 128) & static_cast<uint32_t>(Type.exponent_mask());
        four.of[2 * i] = static_cast<uint32_t>(rest);
        four.of[2 * i + 1] = static_cast<uint32_t>(rest >> 32) | exponent << 20;
      }
    }
    return four;
  }

 private:
  Wide of_[count];
};

}  // namespace narrowcast::codec::dense
