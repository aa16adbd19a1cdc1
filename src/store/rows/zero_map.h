// The stage `zeros` of the fast coders: a bit map of the elements that are not 0, and these elements end to end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "store/rows/fast.h"
#include "store/rows/format.h"

namespace narrowcast::store {

inline constexpr size_t max_map_bytes = max_row_bytes / 8;

inline constexpr size_t present_slack = 64;  // bytes that may be written after the present elements

// Writes the map, padded to whole words, and the present elements to `present`, which has room for all elements and
// present_slack. Returns their number.
template <typename Elem>
size_t split_zeros(const uint8_t* row, size_t elems, uint8_t* map, uint8_t* present) {
  size_t count = 0;
  for (size_t first = 0; first < elems; first += 32) {
    uint32_t bits = 0;
    const size_t here = elems - first < 32 ? elems - first : 32;
    for (size_t i = 0; i < here; ++i) {
      Elem elem;
      std::memcpy(&elem, row + (first + i) * sizeof elem, sizeof elem);
      bits |= (elem != 0 ? 1u : 0u) << i;
      std::memcpy(present + count * sizeof elem, &elem, sizeof elem);
      count += elem != 0 ? 1 : 0;
    }
    std::memcpy(map + first / 8, &bits, sizeof bits);
  }
  return count;
}

// The inverse. `present` has one readable element more than the map has bits.
template <typename Elem>
void join_zeros(const uint8_t* map, const uint8_t* present, size_t elems, uint8_t* row) {
  size_t next = 0;
  for (size_t first = 0; first < elems; first += 32) {
    uint32_t bits;
    std::memcpy(&bits, map + first / 8, sizeof bits);
    const size_t here = elems - first < 32 ? elems - first : 32;
    if (bits == 0) {
      std::memset(row + first * sizeof(Elem), 0, here * sizeof(Elem));
      continue;
    }
    for (size_t i = 0; i < here; ++i) {
      Elem elem;
      std::memcpy(&elem, present + next * sizeof elem, sizeof elem);
      const uint32_t bit = bits >> i & 1;
      elem = static_cast<Elem>(elem & static_cast<Elem>(0 - static_cast<Elem>(bit)));
      std::memcpy(row + (first + i) * sizeof elem, &elem, sizeof elem);
      next += bit;
    }
  }
}

// Calls function.operator()<Elem>() with the unsigned integer of this size.
template <typename Function>
auto with_elem(int elem_bytes, Function function) {
  switch (elem_bytes) {
    case 1: return function.template operator()<uint8_t>();
    case 2: return function.template operator()<uint16_t>();
    case 4: return function.template operator()<uint32_t>();
    default: return function.template operator()<uint64_t>();
  }
}

size_t split_zeros_avx512(int elem_bytes, const uint8_t* row, size_t elems, uint8_t* map, uint8_t* present);
inline size_t split_zeros(InstructionSet set, int elem_bytes, const uint8_t* row, size_t elems, uint8_t* map,
                          uint8_t* present) {
#if defined(__x86_64__)
  if (set == InstructionSet::avx512) return split_zeros_avx512(elem_bytes, row, elems, map, present);
#endif
  return with_elem(elem_bytes, [&]<typename Elem>() { return split_zeros<Elem>(row, elems, map, present); });
}
inline void join_zeros(int elem_bytes, const uint8_t* map, const uint8_t* present, size_t elems, uint8_t* row) {
  with_elem(elem_bytes, [&]<typename Elem>() { join_zeros<Elem>(map, present, elems, row); });
}

// The elements that are present. Bits after the last element are not counted.
inline size_t count_present(const uint8_t* map, size_t elems) {
  size_t count = 0;
  for (size_t first = 0; first < elems; first += 32) {
    uint32_t bits;
    std::memcpy(&bits, map + first / 8, sizeof bits);
    if (elems - first < 32) bits &= (1u << (elems - first)) - 1;
    count += static_cast<size_t>(__builtin_popcount(bits));
  }
  return count;
}

}  // namespace narrowcast::store
