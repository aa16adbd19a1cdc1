// The instructions of AVX-512 that coders of rows use, in plain C++: their tests also run on CPUs without them. To be
// included before the coders.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#define STORE_AVX512

// Hides the names of <immintrin.h>.
namespace narrowcast::store {

template <size_t bytes>
struct EmulatedVector {
  uint8_t of[bytes];

  template <typename T>
  T at(size_t index) const {
    T value;
    std::memcpy(&value, of + index * sizeof value, sizeof value);
    return value;
  }
  template <typename T>
  void set(size_t index, T value) {
    std::memcpy(of + index * sizeof value, &value, sizeof value);
  }
};
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
using __m512i = EmulatedVector<64>;
using __m256i = EmulatedVector<32>;
using __m128i = EmulatedVector<16>;
using __mmask8 = uint8_t;
using __mmask16 = uint16_t;
using __mmask32 = uint32_t;
using __mmask64 = uint64_t;

namespace emulation {

// Each element of the result is function(index).
template <typename T, size_t bytes = 64, typename Function>
EmulatedVector<bytes> each(Function function) {
  EmulatedVector<bytes> result{};
  for (size_t i = 0; i < bytes / sizeof(T); ++i) result.template set<T>(i, static_cast<T>(function(i)));
  return result;
}
template <typename T, size_t bytes, typename Function>
EmulatedVector<bytes> each(const EmulatedVector<bytes>& a, const EmulatedVector<bytes>& b, Function function) {
  return each<T, bytes>([&](size_t i) { return function(a.template at<T>(i), b.template at<T>(i)); });
}
// A bit for each pair of elements for which function is true.
template <typename T, typename Mask, typename Function>
Mask mask_of(const __m512i& a, const __m512i& b, Function function) {
  uint64_t mask = 0;
  for (size_t i = 0; i < 64 / sizeof(T); ++i) mask |= uint64_t{function(a.at<T>(i), b.at<T>(i)) ? 1u : 0u} << i;
  return static_cast<Mask>(mask);
}
inline bool bit(uint64_t mask, size_t index) { return (mask >> index & 1) != 0; }
template <typename T>
__m512i select(uint64_t mask, const __m512i& set, const __m512i& other) {
  return each<T>([&](size_t i) { return bit(mask, i) ? set.at<T>(i) : other.at<T>(i); });
}
template <typename T>
__m512i compressed(uint64_t mask, const __m512i& from) {
  __m512i result{};
  size_t next = 0;
  for (size_t i = 0; i < 64 / sizeof(T); ++i)
    if (bit(mask, i)) result.set<T>(next++, from.at<T>(i));
  return result;
}
template <typename T>
__m512i permuted(const __m512i& indexes, const __m512i& from) {
  return each<T>([&](size_t i) { return from.at<T>(indexes.at<T>(i) % (64 / sizeof(T))); });
}
// A function of its own: where GCC 12 inlines it at -O3 and so reads `first` and `second` at places that vary, its dead
// store elimination (-ftree-dse) drops stores to them. Sanitizers and Valgrind find no fault, and Clang compiles it
// correctly.
template <typename T>
__attribute__((noinline)) __m512i permuted_two(const __m512i& first, const __m512i& indexes, const __m512i& second) {
  constexpr size_t count = 64 / sizeof(T);
  return each<T>([&](size_t i) {
    const auto index = static_cast<size_t>(indexes.at<T>(i) % (2 * count));
    return index < count ? first.at<T>(index) : second.at<T>(index - count);
  });
}
template <typename T>
void store_some(void* to, uint64_t mask, const uint8_t* from, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (bit(mask, i)) std::memcpy(static_cast<uint8_t*>(to) + i * sizeof(T), from + i * sizeof(T), sizeof(T));
}

}  // namespace emulation

inline __m512i _mm512_loadu_si512(const void* from) {
  __m512i result;
  std::memcpy(&result, from, sizeof result);
  return result;
}
inline __m512i _mm512_load_si512(const void* from) { return _mm512_loadu_si512(from); }
inline __m512i _mm512_maskz_loadu_epi8(__mmask64 mask, const void* from) {
  __m512i result{};
  emulation::store_some<uint8_t>(result.of, mask, static_cast<const uint8_t*>(from), 64);
  return result;
}
inline void _mm512_store_si512(void* to, const __m512i& from) { std::memcpy(to, &from, sizeof from); }
inline void _mm512_storeu_si512(void* to, const __m512i& from) { std::memcpy(to, &from, sizeof from); }
inline __m128i _mm_loadu_si128(const __m128i* from) {
  __m128i result;
  std::memcpy(&result, static_cast<const void*>(from), sizeof result);
  return result;
}
inline void _mm512_mask_storeu_epi32(void* to, __mmask16 mask, const __m512i& from) {
  emulation::store_some<uint32_t>(to, mask, from.of, 16);
}
inline void _mm256_mask_storeu_epi8(void* to, __mmask32 mask, const __m256i& from) {
  emulation::store_some<uint8_t>(to, mask, from.of, 32);
}

// The instructions that exist for elements of several sizes. The coders may use more of them than CPUs have: these
// do not compile without the emulation.
#define STORE_EMULATE(bits, Value, Mask)                                                                              \
  inline __m512i _mm512_set1_epi##bits(Value value) {                                                                 \
    return emulation::each<uint##bits##_t>([&](size_t) { return value; });                                            \
  }                                                                                                                   \
  inline __m512i _mm512_add_epi##bits(const __m512i& a, const __m512i& b) {                                           \
    return emulation::each<uint##bits##_t>(a, b, [](uint64_t x, uint64_t y) { return x + y; });                       \
  }                                                                                                                   \
  inline __m512i _mm512_sub_epi##bits(const __m512i& a, const __m512i& b) {                                           \
    return emulation::each<uint##bits##_t>(a, b, [](uint64_t x, uint64_t y) { return x - y; });                       \
  }                                                                                                                   \
  inline __m512i _mm512_slli_epi##bits(const __m512i& from, unsigned count) {                                         \
    return emulation::each<uint##bits##_t>([&](size_t i) { return from.at<uint##bits##_t>(i) << count; });            \
  }                                                                                                                   \
  inline __m512i _mm512_srli_epi##bits(const __m512i& from, unsigned count) {                                         \
    return emulation::each<uint##bits##_t>([&](size_t i) { return from.at<uint##bits##_t>(i) >> count; });            \
  }                                                                                                                   \
  inline __m512i _mm512_permutexvar_epi##bits(const __m512i& indexes, const __m512i& from) {                          \
    return emulation::permuted<uint##bits##_t>(indexes, from);                                                        \
  }                                                                                                                   \
  inline __m512i _mm512_permutex2var_epi##bits(const __m512i& first, const __m512i& indexes, const __m512i& second) { \
    return emulation::permuted_two<uint##bits##_t>(first, indexes, second);                                           \
  }                                                                                                                   \
  inline __m512i _mm512_maskz_compress_epi##bits(Mask mask, const __m512i& from) {                                    \
    return emulation::compressed<uint##bits##_t>(mask, from);                                                         \
  }                                                                                                                   \
  inline __m512i _mm512_maskz_mov_epi##bits(Mask mask, const __m512i& from) {                                         \
    return emulation::select<uint##bits##_t>(mask, from, {});                                                         \
  }                                                                                                                   \
  inline Mask _mm512_test_epi##bits##_mask(const __m512i& a, const __m512i& b) {                                      \
    return emulation::mask_of<uint##bits##_t, Mask>(a, b, [](auto x, auto y) { return (x & y) != 0; });               \
  }                                                                                                                   \
  inline Mask _mm512_cmpeq_epi##bits##_mask(const __m512i& a, const __m512i& b) {                                     \
    return emulation::mask_of<uint##bits##_t, Mask>(a, b, [](auto x, auto y) { return x == y; });                     \
  }
STORE_EMULATE(8, char, __mmask64)
STORE_EMULATE(16, short, __mmask32)
STORE_EMULATE(32, int, __mmask16)
STORE_EMULATE(64, long long, __mmask8)
#undef STORE_EMULATE

inline __m512i _mm512_setzero_si512() { return {}; }
inline __m512i _mm512_maskz_set1_epi64(__mmask8 mask, long long value) {
  return emulation::select<uint64_t>(mask, _mm512_set1_epi64(value), {});
}
inline __m512i _mm512_set_epi64(long long e7, long long e6, long long e5, long long e4, long long e3, long long e2,
                                long long e1, long long e0) {
  const long long of[] = {e0, e1, e2, e3, e4, e5, e6, e7};
  return emulation::each<uint64_t>([&](size_t i) { return of[i]; });
}

// Parts.
inline __m256i _mm512_castsi512_si256(const __m512i& from) {
  return emulation::each<uint8_t, 32>([&](size_t i) { return from.of[i]; });
}
inline __m256i _mm512_extracti64x4_epi64(const __m512i& from, int half) {
  return emulation::each<uint8_t, 32>([&](size_t i) { return from.of[i + 32 * static_cast<size_t>(half)]; });
}
inline __m128i _mm256_castsi256_si128(const __m256i& from) {
  return emulation::each<uint8_t, 16>([&](size_t i) { return from.of[i]; });
}
inline __m128i _mm256_extracti128_si256(const __m256i& from, int half) {
  return emulation::each<uint8_t, 16>([&](size_t i) { return from.of[i + 16 * static_cast<size_t>(half)]; });
}
inline __m512i _mm512_castsi128_si512(const __m128i& from) {
  __m512i result;
  std::memset(&result, 0xa5, sizeof result);  // undefined
  std::memcpy(&result, &from, sizeof from);
  return result;
}
inline __m512i _mm512_inserti32x4(__m512i to, const __m128i& from, int place) {
  std::memcpy(to.of + 16 * place, from.of, sizeof from);
  return to;
}
inline __m128i _mm512_extracti32x4_epi32(const __m512i& from, int place) {
  return emulation::each<uint8_t, 16>([&](size_t i) { return from.of[i + 16 * static_cast<size_t>(place)]; });
}
inline long long _mm_cvtsi128_si64(const __m128i& from) { return from.at<long long>(0); }
inline int _mm_cvtsi128_si32(const __m128i& from) { return from.at<int>(0); }
inline __m256i _mm512_cvtepi16_epi8(const __m512i& from) {
  return emulation::each<uint8_t, 32>([&](size_t i) { return from.at<uint16_t>(i); });
}

// Arithmetic.
#define STORE_EMULATE(name, bytes, Elem, result)                                                      \
  inline EmulatedVector<bytes> name(const EmulatedVector<bytes>& a, const EmulatedVector<bytes>& b) { \
    return emulation::each<Elem>(a, b, [](Elem x, Elem y) { return result; });                        \
  }
STORE_EMULATE(_mm512_xor_si512, 64, uint64_t, x ^ y)
STORE_EMULATE(_mm512_and_si512, 64, uint64_t, x& y)
STORE_EMULATE(_mm512_or_si512, 64, uint64_t, x | y)
STORE_EMULATE(_mm512_andnot_si512, 64, uint64_t, ~x& y)
STORE_EMULATE(_mm512_min_epu8, 64, uint8_t, x < y ? x : y)
STORE_EMULATE(_mm512_min_epi16, 64, int16_t, x < y ? x : y)
STORE_EMULATE(_mm512_min_epi64, 64, int64_t, x < y ? x : y)
STORE_EMULATE(_mm512_max_epi64, 64, int64_t, x < y ? y : x)
STORE_EMULATE(_mm512_mullo_epi16, 64, uint16_t, uint32_t{x} * y)
STORE_EMULATE(_mm512_sllv_epi64, 64, uint64_t, y < 64 ? x << y : 0)
STORE_EMULATE(_mm512_srlv_epi64, 64, uint64_t, y < 64 ? x >> y : 0)
STORE_EMULATE(_mm256_min_epu8, 32, uint8_t, x < y ? x : y)
STORE_EMULATE(_mm256_min_epu16, 32, uint16_t, x < y ? x : y)
STORE_EMULATE(_mm_min_epu8, 16, uint8_t, x < y ? x : y)
STORE_EMULATE(_mm_min_epu16, 16, uint16_t, x < y ? x : y)
#undef STORE_EMULATE
inline __m512i _mm512_ternarylogic_epi64(const __m512i& a, const __m512i& b, const __m512i& c, int table) {
  return emulation::each<uint64_t>([&](size_t i) {
    uint64_t result = 0;
    for (size_t bit = 0; bit < 64; ++bit) {
      const uint64_t row =
          (a.at<uint64_t>(i) >> bit & 1) << 2 | (b.at<uint64_t>(i) >> bit & 1) << 1 | (c.at<uint64_t>(i) >> bit & 1);
      result |= uint64_t{static_cast<unsigned>(table) >> row & 1u} << bit;
    }
    return result;
  });
}
inline __m512i _mm512_mask_sub_epi8(const __m512i& other, __mmask64 mask, const __m512i& a, const __m512i& b) {
  return emulation::select<uint8_t>(mask, _mm512_sub_epi8(a, b), other);
}
inline __m128i _mm_minpos_epu16(const __m128i& from) {
  __m128i result{};
  uint16_t place = 0;
  for (uint16_t i = 1; i < 8; ++i)
    if (from.at<uint16_t>(i) < from.at<uint16_t>(place)) place = i;
  result.set<uint16_t>(0, from.at<uint16_t>(place));
  result.set<uint16_t>(1, place);
  return result;
}
inline __m512i _mm512_maddubs_epi16(const __m512i& a, const __m512i& b) {
  return emulation::each<int16_t>([&](size_t i) {
    return a.at<uint8_t>(2 * i) * b.at<int8_t>(2 * i) + a.at<uint8_t>(2 * i + 1) * b.at<int8_t>(2 * i + 1);
  });
}
inline __m512i _mm512_popcnt_epi64(const __m512i& from) {
  return emulation::each<uint64_t>([&](size_t i) { return std::popcount(from.at<uint64_t>(i)); });
}
inline __m512i _mm512_maskz_sub_epi64(__mmask8 mask, const __m512i& a, const __m512i& b) {
  return emulation::select<uint64_t>(mask, _mm512_sub_epi64(a, b), {});
}
inline long long _mm512_reduce_add_epi64(const __m512i& from) {
  uint64_t sum = 0;
  for (size_t i = 0; i < 8; ++i) sum += from.at<uint64_t>(i);
  return static_cast<long long>(sum);
}

// Shifts.
inline __m128i _mm_srli_epi16(const __m128i& from, int count) {
  return emulation::each<uint16_t, 16>([&](size_t i) { return from.at<uint16_t>(i) >> count; });
}
inline __m512i _mm512_bslli_epi128(const __m512i& from, size_t count) {
  return emulation::each<uint8_t>([&](size_t i) { return i % 16 < count ? 0 : from.of[i - count]; });
}

// Permutations.
// Elements of `low`, from `count` on, and then of `high`.
inline __m512i _mm512_alignr_epi64(const __m512i& high, const __m512i& low, size_t count) {
  return emulation::each<uint64_t>(
      [&](size_t i) { return i + count < 8 ? low.at<uint64_t>(i + count) : high.at<uint64_t>(i + count - 8); });
}
inline __m512i _mm512_maskz_permutexvar_epi16(__mmask32 mask, const __m512i& indexes, const __m512i& from) {
  return emulation::select<uint16_t>(mask, _mm512_permutexvar_epi16(indexes, from), {});
}
inline __m512i _mm512_maskz_permutex2var_epi64(__mmask8 mask, const __m512i& first, const __m512i& indexes,
                                               const __m512i& second) {
  return emulation::select<uint64_t>(mask, emulation::permuted_two<uint64_t>(first, indexes, second), {});
}
// Multiplies the 8x8 matrix of bits in each quadword of `matrixes` by the bytes of the same quadword.
inline __m512i _mm512_gf2p8affine_epi64_epi8(const __m512i& bytes, const __m512i& matrixes, int added) {
  return emulation::each<uint8_t>([&](size_t i) {
    unsigned result = 0;
    for (size_t bit = 0; bit < 8; ++bit) {
      const unsigned products = matrixes.of[i / 8 * 8 + 7 - bit] & bytes.of[i];
      result |= (static_cast<unsigned>(std::popcount(products)) & 1u) << bit;
    }
    return result ^ static_cast<unsigned>(added);
  });
}

// Masks.
inline __m512i _mm512_mask_mov_epi8(const __m512i& other, __mmask64 mask, const __m512i& from) {
  return emulation::select<uint8_t>(mask, from, other);
}
inline __mmask64 _mm512_testn_epi8_mask(const __m512i& a, const __m512i& b) { return ~_mm512_test_epi8_mask(a, b); }
inline __mmask64 _mm512_mask_testn_epi8_mask(__mmask64 mask, const __m512i& a, const __m512i& b) {
  return mask & _mm512_testn_epi8_mask(a, b);
}
inline __mmask64 _mm512_mask_cmpeq_epi8_mask(__mmask64 mask, const __m512i& a, const __m512i& b) {
  return mask & _mm512_cmpeq_epi8_mask(a, b);
}
inline __mmask64 _mm512_mask_cmpge_epu8_mask(__mmask64 mask, const __m512i& a, const __m512i& b) {
  return mask & emulation::mask_of<uint8_t, __mmask64>(a, b, [](uint8_t x, uint8_t y) { return x >= y; });
}
inline __mmask8 _mm512_cmpneq_epi64_mask(const __m512i& a, const __m512i& b) {
  return static_cast<__mmask8>(~_mm512_cmpeq_epi64_mask(a, b));
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

}  // namespace narrowcast::store
