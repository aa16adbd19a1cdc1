#include "store/rows/window_counts.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace narrowcast::store::window {

template <>
void count_below<InstructionSet::baseline>(const uint8_t* bin_of, size_t count, int16_t* below) {
  // Several histograms, so that increments of the same bin do not wait for each other.
  constexpr size_t parts = 4;
  uint32_t histogram[parts][bins + 1] = {};
  for (size_t i = 0; i < count; i += parts)
    for (size_t part = 0; part < parts; ++part) ++histogram[part][bin_of[i + part]];
  uint32_t total = 0;
  for (int bin = 0; bin < bins; ++bin) {
    for (size_t part = 0; part < parts; ++part) total += histogram[part][bin];
    below[bin + 1] = static_cast<int16_t>(total);
  }
}

#if defined(__x86_64__)
namespace {
__attribute__((target("avx2"))) inline int least_byte(__m256i bytes) {
  __m128i least = _mm_min_epu8(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
  least = _mm_min_epu8(least, _mm_srli_epi16(least, 8));
  return _mm_cvtsi128_si32(_mm_minpos_epu16(least)) & 0xff;
}
}  // namespace

// A histogram takes an increment in memory per sample. Comparing 32 samples at a time with the bins that occur, which
// are few, takes less time.
template <>
__attribute__((target("avx2"))) void count_below<InstructionSet::avx2>(const uint8_t* bin_of, size_t count,
                                                                       int16_t* below) {
  constexpr size_t in_vector = sizeof(__m256i), most = max_row_samples / in_vector;
  const __m256i zero = _mm256_setzero_si256(), ones = _mm256_set1_epi8(-1);
  __m256i samples[most];
  for (size_t i = 0; i < most; ++i)
    samples[i] = i * in_vector < count ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bin_of + i * in_vector))
                                       : _mm256_set1_epi8(bins);
  __m256i least = _mm256_set1_epi8(bins), greatest = zero;
  for (size_t i = 0; i < most; ++i) {
    least = _mm256_min_epu8(least, samples[i]);
    if (i * in_vector < count) greatest = _mm256_max_epu8(greatest, samples[i]);
  }
  const int lowest = least_byte(least), highest = 0xff - least_byte(_mm256_xor_si256(greatest, ones));

  constexpr int at_once = 4;
  int first = 1;
  for (; first + at_once <= lowest + 1 && first <= bins; first += at_once)
    std::memset(below + first, 0, at_once * sizeof *below);
  for (; first <= highest && first <= bins; first += at_once) {
    // Four counts of 16 bits in each of four parts.
    __m256i counts = zero;
    for (int i = at_once - 1; i >= 0; --i) {
      const __m256i bin = _mm256_set1_epi8(static_cast<char>(first + i));
      __m256i minus = zero;  // at least -8 in each byte
      for (const __m256i& sample : samples) minus = _mm256_add_epi8(minus, _mm256_cmpgt_epi8(bin, sample));
      const __m256i sums = _mm256_sad_epu8(_mm256_sub_epi8(zero, minus), zero);
      counts = _mm256_add_epi64(_mm256_slli_epi64(counts, 16), sums);
    }
    const __m128i halves = _mm_add_epi64(_mm256_castsi256_si128(counts), _mm256_extracti128_si256(counts, 1));
    const __m128i all = _mm_add_epi64(halves, _mm_unpackhi_epi64(halves, halves));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(below + first), all);
  }
  const uint64_t every = count * 0x0001000100010001;
  for (; first <= bins; first += at_once) std::memcpy(below + first, &every, sizeof every);
}
#endif

}  // namespace narrowcast::store::window
