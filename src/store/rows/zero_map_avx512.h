// The encoder's part of zero_map.h with AVX-512.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>

#include "store/rows/avx512.h"
#include "store/rows/low_ones.h"
#include "store/rows/zero_map.h"

namespace narrowcast::store {
namespace {

// Writes the elements of a vector that are not 0, and unspecified bytes after them. Returns a bit for each element.
template <typename Elem>
STORE_AVX512_INLINE uint64_t put_present(__m512i elems, uint8_t* to) {
  if constexpr (sizeof(Elem) == 1) {
    const __mmask64 present = _mm512_test_epi8_mask(elems, elems);
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi8(present, elems));
    return present;
  } else if constexpr (sizeof(Elem) == 2) {
    const __mmask32 present = _mm512_test_epi16_mask(elems, elems);
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi16(present, elems));
    return present;
  } else if constexpr (sizeof(Elem) == 4) {
    const __mmask16 present = _mm512_test_epi32_mask(elems, elems);
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(present, elems));
    return present;
  } else {
    const __mmask8 present = _mm512_test_epi64_mask(elems, elems);
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi64(present, elems));
    return present;
  }
}

// split_zeros() of zero_map.h. `present` has room for all elements and 64 more bytes.
template <typename Elem>
STORE_AVX512 size_t split_zeros_512(const uint8_t* row, size_t elems, uint8_t* map, uint8_t* present) {
  constexpr size_t in_vector = 64 / sizeof(Elem);
  const uint32_t padding = 0;
  std::memcpy(map + (elems - 1) / 32 * sizeof padding, &padding, sizeof padding);
  size_t count = 0;
  for (size_t first = 0; first < elems; first += in_vector) {
    const auto bytes = static_cast<int>(std::min<size_t>((elems - first) * sizeof(Elem), 64));
    const __m512i some = _mm512_maskz_loadu_epi8(low_ones(bytes), row + first * sizeof(Elem));
    const uint64_t found = put_present<Elem>(some, present + count * sizeof(Elem));
    std::memcpy(map + first / 8, &found, in_vector / 8);
    count += static_cast<size_t>(std::popcount(found));
  }
  return count;
}

}  // namespace
}  // namespace narrowcast::store
