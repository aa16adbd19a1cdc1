// Elements of rows of floating-point numbers, for the vectorized coder `window`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "codec/window/vectorized_rows.h"

namespace narrowcast::store::window {

using namespace codec::window;
using namespace codec::window::rows;

template <const ValueType& type>
using Elem = std::conditional_t<
    type.value_bytes == 1, uint8_t,
    std::conditional_t<type.value_bytes == 2, uint16_t, std::conditional_t<type.value_bytes == 4, uint32_t, uint64_t>>>;

template <const ValueType& type>
NARROWCAST_INLINE Elem<type> load_elem(const uint8_t* values, size_t index) {
  Elem<type> elem;
  std::memcpy(&elem, values + index * sizeof elem, sizeof elem);
  return elem;
}

// Bits of an element below the exponent. A trim only removes some of them.
template <const ValueType& type>
constexpr int exponent_shift = 8 * type.value_bytes - 1 - type.exponent_bits;

template <const ValueType& type>
NARROWCAST_INLINE uint16_t exponent_at(const uint8_t* values, size_t index) {
  return static_cast<uint16_t>(load_elem<type>(values, index) >> exponent_shift<type> & exponent_mask<type>);
}

}  // namespace narrowcast::store::window
