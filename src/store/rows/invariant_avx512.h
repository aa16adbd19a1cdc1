// The encoder of `invariant` with AVX-512: the bytes of reference.cc.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <variant>

#include "store/rows/avx512.h"
#include "store/rows/bit_stream.h"
#include "store/rows/low_ones.h"
#include "store/rows/model.h"

namespace narrowcast::store {
namespace {

template <uint32_t chunk_bytes>
constexpr int chunks_in_vector = 64 / static_cast<int>(chunk_bytes);

// The chunks of 64 bytes: one bit for each.
template <uint32_t chunk_bytes>
STORE_AVX512_INLINE uint64_t equal_chunks(__m512i a, __m512i b) {
  if constexpr (chunk_bytes == 1)
    return _mm512_cmpeq_epi8_mask(a, b);
  else if constexpr (chunk_bytes == 2)
    return _mm512_cmpeq_epi16_mask(a, b);
  else if constexpr (chunk_bytes == 4)
    return _mm512_cmpeq_epi32_mask(a, b);
  else
    return _mm512_cmpeq_epi64_mask(a, b);
}
template <uint32_t chunk_bytes>
STORE_AVX512_INLINE __m512i some_chunks(uint64_t chunks, __m512i bytes) {
  if constexpr (chunk_bytes == 1)
    return _mm512_maskz_mov_epi8(chunks, bytes);
  else if constexpr (chunk_bytes == 2)
    return _mm512_maskz_mov_epi16(static_cast<__mmask32>(chunks), bytes);
  else if constexpr (chunk_bytes == 4)
    return _mm512_maskz_mov_epi32(static_cast<__mmask16>(chunks), bytes);
  else
    return _mm512_maskz_mov_epi64(static_cast<__mmask8>(chunks), bytes);
}

// Some of the chunks, end to end.
template <uint32_t chunk_bytes>
STORE_AVX512_INLINE __m512i join_chunks(uint64_t chunks, __m512i bytes) {
  if constexpr (chunk_bytes == 1)
    return _mm512_maskz_compress_epi8(chunks, bytes);
  else if constexpr (chunk_bytes == 2)
    return _mm512_maskz_compress_epi16(static_cast<__mmask32>(chunks), bytes);
  else if constexpr (chunk_bytes == 4)
    return _mm512_maskz_compress_epi32(static_cast<__mmask16>(chunks), bytes);
  else
    return _mm512_maskz_compress_epi64(static_cast<__mmask8>(chunks), bytes);
}

// The sums of the first i + 1 of eight numbers, for each i.
STORE_AVX512_INLINE __m512i sums_of_eight(__m512i numbers) {
  const __m512i zero = _mm512_setzero_si512();
  numbers = _mm512_add_epi64(numbers, _mm512_alignr_epi64(numbers, zero, 7));
  numbers = _mm512_add_epi64(numbers, _mm512_alignr_epi64(numbers, zero, 6));
  return _mm512_add_epi64(numbers, _mm512_alignr_epi64(numbers, zero, 4));
}

// As FastBitWriter, for eight fields at a time. The buffer must have 72 more bytes than the fields take.
class WideBitWriter {
 public:
  // The stream begins with `count` bits, less than 64.
  STORE_AVX512 WideBitWriter(uint8_t* begin, uint64_t bits, int count)
      : begin_(begin), next_(begin), filled_(static_cast<uint64_t>(count)) {
    word_ = _mm512_maskz_set1_epi64(1, static_cast<long long>(bits));
  }

  // Bits of a field above its count must be 0.
  STORE_AVX512_INLINE void put(__m512i fields, __m512i counts) {
    const __m512i zero = _mm512_setzero_si512();
    // Where a field begins, from the incomplete word on.
    const __m512i ends = sums_of_eight(counts);
    const __m512i begins =
        _mm512_add_epi64(_mm512_sub_epi64(ends, counts), _mm512_set1_epi64(static_cast<long long>(filled_)));
    const __m512i shift = _mm512_and_si512(begins, _mm512_set1_epi64(63)), word = _mm512_srli_epi64(begins, 6);
    // Its bits in this word, and in the next one. Bits do not overlap: sums are unions, and the fields of a word are
    // the difference of two sums, which may overflow.
    const __m512i low = sums_of_eight(_mm512_sllv_epi64(fields, shift));
    const __m512i high = sums_of_eight(_mm512_srlv_epi64(fields, _mm512_sub_epi64(_mm512_set1_epi64(64), shift)));
    // A field is in the word of the one before or in the next word: no word is left out.
    const auto last_of_word =
        static_cast<__mmask8>(_mm512_cmpneq_epi64_mask(word, _mm512_alignr_epi64(word, word, 1)) | 0x80);
    const auto used = static_cast<__mmask8>(low_ones(std::popcount(last_of_word)));
    const __m512i lows = _mm512_maskz_compress_epi64(last_of_word, low);
    const __m512i highs = _mm512_maskz_compress_epi64(last_of_word, high);
    const __m512i here = _mm512_maskz_sub_epi64(used, lows, _mm512_alignr_epi64(lows, zero, 7));
    const __m512i after = _mm512_maskz_sub_epi64(used, highs, _mm512_alignr_epi64(highs, zero, 7));
    const __m512i words = _mm512_or_si512(_mm512_or_si512(here, word_), _mm512_alignr_epi64(after, zero, 7));
    store(words, after,
          static_cast<uint64_t>(_mm_cvtsi128_si64(_mm512_extracti32x4_epi32(_mm512_alignr_epi64(ends, ends, 7), 0))));
  }

  // One field of at most 512 bits.
  STORE_AVX512_INLINE void put_long(__m512i bits, uint64_t count) {
    const __m512i low = _mm512_sllv_epi64(bits, _mm512_set1_epi64(static_cast<long long>(filled_)));
    const __m512i high = _mm512_srlv_epi64(bits, _mm512_set1_epi64(static_cast<long long>(64 - filled_)));
    const __m512i before = _mm512_alignr_epi64(high, _mm512_setzero_si512(), 7);
    store(_mm512_or_si512(_mm512_or_si512(low, word_), before), high, count);
  }

  // Completes the last word. Returns the bytes of the stream, a multiple of 4.
  STORE_AVX512 size_t finish() {
    _mm512_storeu_si512(next_, word_);
    return aligned4(static_cast<size_t>(next_ - begin_) + (filled_ + 7) / 8);
  }

 private:
  // Words from the incomplete one on, which now have `count` more bits; the ninth is the last of `after`.
  STORE_AVX512_INLINE void store(__m512i words, __m512i after, uint64_t count) {
    _mm512_storeu_si512(next_, words);
    filled_ += count;
    const auto whole = static_cast<long long>(filled_ / 64);
    const __m512i ninth = _mm512_alignr_epi64(_mm512_setzero_si512(), after, 7);
    word_ = _mm512_maskz_permutex2var_epi64(1, words, _mm512_set1_epi64(whole), ninth);
    next_ += whole * 8;
    filled_ %= 64;
  }

  uint8_t* begin_;
  uint8_t* next_;
  __m512i word_;     // the incomplete word
  uint64_t filled_;  // its bits
};

// A cluster that may encode a row.
struct Candidate {
  alignas(64) uint8_t participates[max_row_bytes / 8 + 64];  // a bit for each chunk, as in the payload; then zeros
  uint64_t saved_bits;
};

// What the stages do to a row.
struct StagedChunks {
  alignas(64) uint8_t present[max_row_bytes / 8 + 64];  // a bit for each chunk, as in the zero map; then zeros
  uint64_t coded;                                       // in eight bytes, the bits that the trim leaves

  STORE_AVX512_INLINE __m512i coded_bits() const { return _mm512_set1_epi64(static_cast<long long>(coded)); }
};

// As many bits as a vector has chunks.
template <uint32_t chunk_bytes>
inline uint64_t load_chunk_bits(const uint8_t* bits) {
  uint64_t chunks = 0;
  std::memcpy(&chunks, bits, chunks_in_vector<chunk_bytes> / 8);
  return chunks;
}

// Returns false if the row does not follow the trim.
template <uint32_t chunk_bytes>
STORE_AVX512 bool apply_stages_512(const Model& model, const uint8_t* row, size_t row_bytes, StagedChunks& staged) {
  const TrimPattern trim = model.trim_pattern();
  const __m512i zero = _mm512_setzero_si512();
  const __m512i trimmed = _mm512_set1_epi64(static_cast<long long>(trim.bits));
  const __m512i values = _mm512_set1_epi64(static_cast<long long>(trim.values));
  staged.coded = ~trim.bits;
  __m512i differs = zero;
  uint8_t* bits = staged.present;
  for (size_t at = 0; at < row_bytes; at += 64, bits += chunks_in_vector<chunk_bytes> / 8) {
    const int bytes = static_cast<int>(std::min<size_t>(row_bytes - at, 64));
    const __m512i some = _mm512_maskz_loadu_epi8(low_ones(bytes), row + at);
    uint64_t chunks = low_ones(bytes / static_cast<int>(chunk_bytes));
    if (model.has_zeros) chunks &= ~equal_chunks<chunk_bytes>(some, zero);
    const __m512i other = _mm512_xor_si512(_mm512_and_si512(some, trimmed), values);
    differs = _mm512_or_si512(differs, some_chunks<chunk_bytes>(chunks, other));
    std::memcpy(bits, &chunks, chunks_in_vector<chunk_bytes> / 8);
  }
  _mm512_storeu_si512(bits, zero);
  return _mm512_test_epi64_mask(differs, differs) == 0;
}

// The vector's chunks that participate. Adds the bits that their masks save.
template <uint32_t chunk_bytes>
STORE_AVX512_INLINE uint64_t try_chunks(__m512i row, __m512i mask, __m512i values, uint64_t existing, __m512i coded,
                                        __m512i& saved) {
  const uint64_t chunks = equal_chunks<chunk_bytes>(_mm512_and_si512(row, mask), values) & existing;
  const __m512i saving = _mm512_and_si512(mask, coded);
  saved = _mm512_add_epi64(saved, _mm512_popcnt_epi64(some_chunks<chunk_bytes>(chunks, saving)));
  return chunks;
}

// try_cluster() for a mask whose bits are all 1.
template <uint32_t chunk_bytes>
STORE_AVX512 void try_whole_mask(const uint8_t* row, const uint8_t* values, size_t row_bytes, Candidate& found) {
  constexpr size_t bytes_of_bits = chunks_in_vector<chunk_bytes> / 8;
  uint64_t equal = 0;
  uint8_t* bits = found.participates;
  size_t at = 0;
  for (; at + 64 <= row_bytes; at += 64, bits += bytes_of_bits) {
    const uint64_t chunks = equal_chunks<chunk_bytes>(_mm512_loadu_si512(row + at), _mm512_loadu_si512(values + at));
    equal += static_cast<uint64_t>(std::popcount(chunks));
    std::memcpy(bits, &chunks, bytes_of_bits);
  }
  if (const int rest = static_cast<int>(row_bytes - at); rest != 0) {
    const __mmask64 bytes = low_ones(rest);
    const uint64_t chunks = equal_chunks<chunk_bytes>(_mm512_maskz_loadu_epi8(bytes, row + at),
                                                      _mm512_maskz_loadu_epi8(bytes, values + at)) &
                            low_ones(rest / static_cast<int>(chunk_bytes));
    equal += static_cast<uint64_t>(std::popcount(chunks));
    std::memcpy(bits, &chunks, bytes_of_bits);
    bits += bytes_of_bits;
  }
  _mm512_storeu_si512(bits, _mm512_setzero_si512());
  found.saved_bits = equal * 8 * chunk_bytes;
}

// `staged`: unused without stages.
template <uint32_t chunk_bytes, bool has_stages>
STORE_AVX512 void try_cluster(const StagedChunks* staged, const uint8_t* row, const uint8_t* masks,
                              const uint8_t* values, size_t row_bytes, Candidate& found) {
  constexpr size_t bytes_of_bits = chunks_in_vector<chunk_bytes> / 8;
  const __m512i coded = has_stages ? staged->coded_bits() : _mm512_set1_epi8(-1);
  const auto present = [&](size_t at, int bytes) {
    return has_stages ? load_chunk_bits<chunk_bytes>(staged->present + at / chunk_bytes / 8)
                      : low_ones(bytes / static_cast<int>(chunk_bytes));
  };
  __m512i saved = _mm512_setzero_si512();
  uint8_t* bits = found.participates;
  size_t at = 0;
  // Whole vectors need no masks, which would cost as much as the rest.
  for (; at + 64 <= row_bytes; at += 64, bits += bytes_of_bits) {
    const uint64_t chunks = try_chunks<chunk_bytes>(_mm512_loadu_si512(row + at), _mm512_loadu_si512(masks + at),
                                                    _mm512_loadu_si512(values + at), present(at, 64), coded, saved);
    std::memcpy(bits, &chunks, bytes_of_bits);
  }
  if (const int rest = static_cast<int>(row_bytes - at); rest != 0) {
    const __mmask64 bytes = low_ones(rest);
    const uint64_t chunks =
        try_chunks<chunk_bytes>(_mm512_maskz_loadu_epi8(bytes, row + at), _mm512_maskz_loadu_epi8(bytes, masks + at),
                                _mm512_maskz_loadu_epi8(bytes, values + at), present(at, rest), coded, saved);
    std::memcpy(bits, &chunks, bytes_of_bits);
    bits += bytes_of_bits;
  }
  _mm512_storeu_si512(bits, _mm512_setzero_si512());
  found.saved_bits = static_cast<uint64_t>(_mm512_reduce_add_epi64(saved));
}

constexpr size_t part_bytes = 512;  // of a row, whose fields are written together

struct Part {
  const uint8_t* row;
  const uint8_t* masks;
  size_t bytes;
  const uint8_t* participates;
  const uint8_t* present;  // unused without stages, as is `coded`
  uint64_t coded;
};

// The bits of a vector that are in fields: not those of the mask in chunks that participate.
template <uint32_t chunk_bytes, bool has_stages>
STORE_AVX512_INLINE __m512i varying_bits(const Part& part, size_t at, __mmask64 here) {
  const size_t of_bits = at / chunk_bytes / 8;
  const __m512i mask = _mm512_maskz_loadu_epi8(here, part.masks + at);
  const __m512i constant = some_chunks<chunk_bytes>(load_chunk_bits<chunk_bytes>(part.participates + of_bits), mask);
  if constexpr (has_stages) {
    const __m512i coded = _mm512_set1_epi64(static_cast<long long>(part.coded));
    const uint64_t present = load_chunk_bits<chunk_bytes>(part.present + of_bits);
    return _mm512_andnot_si512(constant, some_chunks<chunk_bytes>(present, coded));
  } else {
    return _mm512_andnot_si512(constant, _mm512_maskz_mov_epi8(here, _mm512_set1_epi8(-1)));
  }
}

// Writes a part of a row whose chunks are all constant or all varying, as in tables with many zeros. Returns false if
// others are among them.
template <uint32_t chunk_bytes, bool has_stages>
STORE_AVX512_INLINE bool put_chunks(const Part& part, WideBitWriter& writer) {
  uint64_t varying[part_bytes / 64];
  const __m512i zero = _mm512_setzero_si512(), ones = _mm512_set1_epi8(-1);
  uint64_t mixed = 0;
  for (size_t at = 0; at < part.bytes; at += 64) {
    const __m512i bits = varying_bits<chunk_bytes, has_stages>(part, at, low_ones(64));
    varying[at / 64] = equal_chunks<chunk_bytes>(bits, ones);
    mixed |= ~(varying[at / 64] | equal_chunks<chunk_bytes>(bits, zero));
  }
  if ((mixed & low_ones(chunks_in_vector<chunk_bytes>)) != 0) return false;
  for (size_t at = 0; at < part.bytes; at += 64)
    writer.put_long(join_chunks<chunk_bytes>(varying[at / 64], _mm512_loadu_si512(part.row + at)),
                    static_cast<uint64_t>(std::popcount(varying[at / 64])) * 8 * chunk_bytes);
  return true;
}

// Writes a part of a row. Bits: see extract.h.
template <uint32_t chunk_bytes, typename Bits, bool has_stages>
STORE_AVX512_INLINE void put_fields(const Part& part, WideBitWriter& writer) {
  // First all fields, then the stream: where it continues is known late, and CPUs that do not speculate on addresses
  // (for security) load nothing until then.
  alignas(64) uint64_t fields[part_bytes / 8], counts[part_bytes / 8];
  for (size_t at = 0; at < part.bytes; at += 64) {
    const __mmask64 here = low_ones(static_cast<int>(std::min<size_t>(part.bytes - at, 64)));
    const __m512i varying = varying_bits<chunk_bytes, has_stages>(part, at, here);
    alignas(64) uint64_t select[8], words[8];
    _mm512_store_si512(select, varying);
    _mm512_store_si512(words, _mm512_maskz_loadu_epi8(here, part.row + at));
    const size_t first = at / 8;
    _mm512_store_si512(counts + first, _mm512_popcnt_epi64(varying));
    for (size_t i = 0; i < 8; ++i) fields[first + i] = Bits::extract(words[i], select[i]);
  }
  for (size_t first = 0; 8 * first < part.bytes; first += 8)
    writer.put(_mm512_load_si512(fields + first), _mm512_load_si512(counts + first));
}

// Writes `bits`, one for each of the chunks.
STORE_AVX512_INLINE void put_bits(const uint8_t* bits, size_t chunks, WideBitWriter& writer) {
  for (size_t first = 0; first < chunks; first += 512)
    writer.put_long(_mm512_loadu_si512(bits + first / 8), std::min<size_t>(chunks - first, 512));
}
// Only those of the chunks that are present.
template <typename Bits>
STORE_AVX512_INLINE void put_present_bits(const uint8_t* bits, const uint8_t* present, size_t chunks,
                                          WideBitWriter& writer) {
  for (size_t first = 0; first < chunks; first += 512) {
    const __m512i of_vector = _mm512_loadu_si512(present + first / 8);
    alignas(64) uint64_t select[8], words[8];
    _mm512_store_si512(select, of_vector);
    _mm512_store_si512(words, _mm512_loadu_si512(bits + first / 8));
    for (size_t i = 0; i < 8; ++i) words[i] = Bits::extract(words[i], select[i]);
    writer.put(_mm512_load_si512(words), _mm512_popcnt_epi64(of_vector));
  }
}

template <uint32_t chunk_bytes, typename Bits, bool has_stages>
STORE_AVX512 size_t encode_invariant(const Model& model, const uint8_t* row, uint8_t* payload) {
  const size_t row_bytes = model.shape.row_bytes(), chunks = row_bytes / chunk_bytes;
  std::conditional_t<has_stages, StagedChunks, std::monostate> stages;
  const StagedChunks* staged = nullptr;
  if constexpr (has_stages) {
    if (!apply_stages_512<chunk_bytes>(model, row, row_bytes, stages)) return 0;
    staged = &stages;
  }
  Candidate candidates[2];
  // The cluster whose masks save most bits, the first of equals.
  uint32_t cluster = 0;
  size_t best = 0;
  for (uint32_t number = 0; number < model.clusters; ++number) {
    Candidate& next = candidates[number == 0 ? 0 : 1 - best];
    const uint8_t* const values = model.values.data() + number * row_bytes;
    if (!has_stages && model.is_whole(number))
      try_whole_mask<chunk_bytes>(row, values, row_bytes, next);
    else
      try_cluster<chunk_bytes, has_stages>(staged, row, model.masks.data() + number * row_bytes, values, row_bytes,
                                           next);
    if (number != 0 && next.saved_bits > candidates[best].saved_bits) cluster = number, best = 1 - best;
  }

  alignas(64) uint8_t stream[stream_buffer_bytes + 8];
  WideBitWriter writer(stream, uint64_t{cluster} << first_coder_bit, first_coder_bit + model.cluster_bits());
  const uint8_t* participates = candidates[best].participates;
  if (has_stages && model.has_zeros) {
    put_bits(staged->present, chunks, writer);
    put_present_bits<Bits>(participates, staged->present, chunks, writer);
  } else {
    put_bits(participates, chunks, writer);
  }
  const uint8_t* const masks = model.masks.data() + cluster * row_bytes;
  for (size_t at = 0; at < row_bytes; at += part_bytes) {
    const size_t bytes = std::min(row_bytes - at, part_bytes), of_bits = at / chunk_bytes / 8;
    const Part part{row + at,
                    masks + at,
                    bytes,
                    participates + of_bits,
                    has_stages ? staged->present + of_bits : nullptr,
                    has_stages ? staged->coded : 0};
    if (bytes % 64 != 0 || !put_chunks<chunk_bytes, has_stages>(part, writer))
      put_fields<chunk_bytes, Bits, has_stages>(part, writer);
  }
  const size_t bytes = writer.finish();
  if (bytes >= header_bytes + aligned4(row_bytes)) return 0;
  std::memcpy(payload, stream, bytes);
  return bytes;
}

template <typename Bits, bool has_stages>
STORE_AVX512 size_t encode_chunks(const Model& model, const uint8_t* row, uint8_t* payload) {
  switch (model.chunk_bytes) {
    case 1: return encode_invariant<1, Bits, has_stages>(model, row, payload);
    case 2: return encode_invariant<2, Bits, has_stages>(model, row, payload);
    case 4: return encode_invariant<4, Bits, has_stages>(model, row, payload);
    default: return encode_invariant<8, Bits, has_stages>(model, row, payload);
  }
}

template <typename Bits>
STORE_AVX512 size_t encode_invariant(const Model& model, const uint8_t* row, uint8_t* payload) {
  return model.has_stages() ? encode_chunks<Bits, true>(model, row, payload)
                            : encode_chunks<Bits, false>(model, row, payload);
}

}  // namespace
}  // namespace narrowcast::store
