// The encoder of `invariant` with AVX-512: the bytes of reference.cc.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>

#include "store/rows/avx512.h"
#include "store/rows/bit_stream.h"
#include "store/rows/load.h"
#include "store/rows/low_ones.h"
#include "store/rows/model.h"

namespace narrowcast::store {
namespace {

// The chunks of 64 bytes: one bit for each.
template <uint32_t chunk_bytes>
STORE_AVX512 uint64_t equal_chunks(__m512i a, __m512i b) {
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
STORE_AVX512 __m512i some_chunks(uint64_t chunks, __m512i bytes) {
  if constexpr (chunk_bytes == 1)
    return _mm512_maskz_mov_epi8(chunks, bytes);
  else if constexpr (chunk_bytes == 2)
    return _mm512_maskz_mov_epi16(static_cast<__mmask32>(chunks), bytes);
  else if constexpr (chunk_bytes == 4)
    return _mm512_maskz_mov_epi32(static_cast<__mmask16>(chunks), bytes);
  else
    return _mm512_maskz_mov_epi64(static_cast<__mmask8>(chunks), bytes);
}

// A cluster that may encode a row.
struct Candidate {
  alignas(64) uint8_t participates[max_row_bytes / 8 + sizeof(uint64_t)];  // a bit for each chunk, as in the payload
  uint64_t saved_bits;
};

template <uint32_t chunk_bytes>
STORE_AVX512 void try_cluster(const uint8_t* row, const uint8_t* masks, const uint8_t* values, size_t row_bytes,
                              Candidate& found) {
  constexpr size_t chunks_in_vector = 64 / chunk_bytes;
  __m512i saved = _mm512_setzero_si512();
  uint8_t* bits = found.participates;
  for (size_t at = 0; at < row_bytes; at += 64, bits += chunks_in_vector / 8) {
    const auto here = static_cast<int>(std::min<size_t>(row_bytes - at, 64));
    const __mmask64 bytes = low_ones(here);
    const __m512i mask = _mm512_maskz_loadu_epi8(bytes, masks + at);
    const __m512i masked = _mm512_and_si512(_mm512_maskz_loadu_epi8(bytes, row + at), mask);
    const uint64_t chunks = equal_chunks<chunk_bytes>(masked, _mm512_maskz_loadu_epi8(bytes, values + at));
    saved = _mm512_add_epi64(saved, _mm512_popcnt_epi64(some_chunks<chunk_bytes>(chunks, mask)));
    std::memcpy(bits, &chunks, chunks_in_vector / 8);
  }
  found.saved_bits = static_cast<uint64_t>(_mm512_reduce_add_epi64(saved));
}

// Bits: see extract.h.
template <uint32_t chunk_bytes, typename Bits>
STORE_AVX512 size_t encode_invariant(const Model& model, const uint8_t* row, uint8_t* payload) {
  constexpr size_t chunks_in_vector = 64 / chunk_bytes;
  const size_t row_bytes = model.shape.row_bytes(), chunks = row_bytes / chunk_bytes;
  Candidate candidates[2];
  // The cluster whose masks save most bits, the first of equals.
  uint32_t cluster = 0;
  size_t best = 0;
  for (uint32_t number = 0; number < model.clusters; ++number) {
    Candidate& next = candidates[number == 0 ? 0 : 1 - best];
    try_cluster<chunk_bytes>(row, model.masks.data() + number * row_bytes, model.values.data() + number * row_bytes,
                             row_bytes, next);
    if (number != 0 && next.saved_bits > candidates[best].saved_bits) cluster = number, best = 1 - best;
  }

  alignas(64) uint8_t stream[stream_buffer_bytes];
  FastBitWriter writer(stream, first_coder_bit);
  writer.put(cluster, model.cluster_bits());
  const uint8_t* participates = candidates[best].participates;
  for (size_t first = 0; first < chunks; first += 64) {
    const auto count = static_cast<int>(std::min<size_t>(chunks - first, 64));
    writer.put(load<uint64_t>(participates + first / 8) & low_ones(count), count);
  }
  const uint8_t* const masks = model.masks.data() + cluster * row_bytes;
  for (size_t at = 0; at < row_bytes; at += 64, participates += chunks_in_vector / 8) {
    const auto here = static_cast<int>(std::min<size_t>(row_bytes - at, 64));
    const __mmask64 bytes = low_ones(here);
    uint64_t constant_chunks = 0;
    std::memcpy(&constant_chunks, participates, chunks_in_vector / 8);
    // All bits but those of the mask in chunks that participate.
    const __m512i constant = some_chunks<chunk_bytes>(constant_chunks, _mm512_maskz_loadu_epi8(bytes, masks + at));
    const __m512i varying = _mm512_andnot_si512(constant, _mm512_maskz_mov_epi8(bytes, _mm512_set1_epi8(-1)));
    alignas(64) uint64_t select[8], counts[8], words[8];
    _mm512_store_si512(select, varying);
    _mm512_store_si512(counts, _mm512_popcnt_epi64(varying));
    _mm512_store_si512(words, _mm512_maskz_loadu_epi8(bytes, row + at));
    for (size_t i = 0; i < 8; ++i) writer.put(Bits::extract(words[i], select[i]), static_cast<int>(counts[i]));
  }
  const size_t bytes = writer.finish();
  if (bytes >= header_bytes + aligned4(row_bytes)) return 0;
  std::memcpy(payload, stream, bytes);
  return bytes;
}

template <typename Bits>
STORE_AVX512 size_t encode_invariant(const Model& model, const uint8_t* row, uint8_t* payload) {
  switch (model.chunk_bytes) {
    case 1: return encode_invariant<1, Bits>(model, row, payload);
    case 2: return encode_invariant<2, Bits>(model, row, payload);
    case 4: return encode_invariant<4, Bits>(model, row, payload);
    default: return encode_invariant<8, Bits>(model, row, payload);
  }
}

}  // namespace
}  // namespace narrowcast::store
