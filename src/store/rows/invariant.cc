// The fast coder `invariant`: eight bytes of a row at a time, whatever the size of the chunks.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <variant>

#include "store/rows/bit_stream.h"
#include "store/rows/extract.h"
#include "store/rows/fast.h"
#include "store/rows/load.h"

namespace narrowcast::store {
namespace {

// 1 in the lowest bit of each of the chunks in a word.
constexpr uint64_t lowest_bits(uint32_t chunk_bytes) {
  switch (chunk_bytes) {
    case 1: return 0x0101010101010101;
    case 2: return 0x0001000100010001;
    case 4: return 0x0000000100000001;
    default: return 1;
  }
}

// All bits of the chunks whose lowest bit is in `lowest`, which has no other bits.
template <uint32_t chunk_bytes>
STORE_INLINE uint64_t whole_chunks(uint64_t lowest) {
  if constexpr (chunk_bytes == 8) return uint64_t{0} - lowest;
  return (lowest << (8 * chunk_bytes % 64)) - lowest;
}

STORE_INLINE uint64_t ones_below(size_t bytes) { return bytes == 8 ? ~uint64_t{0} : (uint64_t{1} << 8 * bytes) - 1; }

// Chunks are compared in loops that compilers vectorize.
template <uint32_t chunk_bytes>
struct ChunkOf;
typedef uint8_t Chunk8 __attribute__((may_alias));
typedef uint16_t Chunk16 __attribute__((aligned(1), may_alias));
typedef uint32_t Chunk32 __attribute__((aligned(1), may_alias));
typedef uint64_t Chunk64 __attribute__((aligned(1), may_alias));
template <>
struct ChunkOf<1> {
  typedef Chunk8 type;
};
template <>
struct ChunkOf<2> {
  typedef Chunk16 type;
};
template <>
struct ChunkOf<4> {
  typedef Chunk32 type;
};
template <>
struct ChunkOf<8> {
  typedef Chunk64 type;
};

constexpr size_t max_row_words = max_row_bytes / 8;

// Sets all bits of the chunks that do not participate, and none of the others. The bits after the last chunk are
// unspecified.
template <uint32_t chunk_bytes>
STORE_INLINE void compare_chunks(const uint8_t* row, const uint8_t* masks, const uint8_t* values, size_t row_bytes,
                                 uint64_t* __restrict excluded) {
  typedef typename ChunkOf<chunk_bytes>::type Chunk;
  const Chunk* const of_row = reinterpret_cast<const Chunk*>(row);
  const Chunk* const of_masks = reinterpret_cast<const Chunk*>(masks);
  const Chunk* const of_values = reinterpret_cast<const Chunk*>(values);
  Chunk* const result = reinterpret_cast<Chunk*>(excluded);
  const size_t chunks = row_bytes / chunk_bytes;
  for (size_t i = 0; i < chunks; ++i)
    result[i] = (of_row[i] & of_masks[i]) == of_values[i] ? Chunk{0} : static_cast<Chunk>(~Chunk{0});
}

// A row in front of the coder `invariant`. Without stages, no chunk is absent and all bits are coded.
struct Staged {
  uint64_t coded = ~uint64_t{0};  // in eight bytes, the bits that the trim leaves
  // All bits of the chunks that a zero map leaves out, and after the last chunk; none of the others.
  alignas(64) uint64_t absent[max_row_words];
};

// Returns false if the row does not follow the trim.
template <uint32_t chunk_bytes>
STORE_INLINE bool apply_stages(const Model& model, const uint8_t* row, size_t row_bytes, Staged& staged) {
  const TrimPattern trim = model.trim_pattern();
  const size_t words = (row_bytes + 7) / 8, bytes_in_last = row_bytes - 8 * (words - 1);
  staged.coded = ~trim.bits;
  std::memset(staged.absent, 0, 8 * words);
  staged.absent[words - 1] = ~ones_below(bytes_in_last);
  if (model.has_zeros) {
    typedef typename ChunkOf<chunk_bytes>::type Chunk;
    const Chunk* const of_row = reinterpret_cast<const Chunk*>(row);
    Chunk* const result = reinterpret_cast<Chunk*>(staged.absent);
    const size_t chunks = row_bytes / chunk_bytes;
    for (size_t i = 0; i < chunks; ++i) result[i] = of_row[i] == 0 ? static_cast<Chunk>(~Chunk{0}) : Chunk{0};
  }
  uint64_t differs = 0;
  for (size_t i = 0; i < words; ++i)
    differs |= (load8(row + 8 * i, row_bytes - 8 * i) ^ trim.values) & trim.bits & ~staged.absent[i];
  return differs == 0;
}

// The bits that the masks save in chunks that participate.
STORE_INLINE uint64_t saved_bits(const uint8_t* masks, uint64_t coded, const uint64_t* excluded, size_t row_bytes) {
  const Chunk64* const words = reinterpret_cast<const Chunk64*>(masks);
  const size_t whole = row_bytes / 8;
  uint64_t saved = 0;
  for (size_t i = 0; i < whole; ++i)
    saved += static_cast<uint64_t>(__builtin_popcountll(words[i] & coded & ~excluded[i]));
  if (const size_t bytes = row_bytes % 8; bytes != 0)
    saved += static_cast<uint64_t>(__builtin_popcountll(load8(masks + 8 * whole, bytes) & coded & ~excluded[whole]));
  return saved;
}

// The cluster whose masks save most bits, the first of equals, and its excluded chunks, in one of the two buffers.
// `staged`: nullptr if the model has no stages.
template <uint32_t chunk_bytes>
STORE_INLINE uint32_t best_cluster(const Model& model, const Staged* staged, const uint8_t* row, size_t row_bytes,
                                   uint64_t (*buffers)[max_row_words], const uint64_t** excluded) {
  uint32_t cluster = 0;
  uint64_t most_saved = 0;
  size_t best = 1;
  for (uint32_t candidate = 0; candidate < model.clusters; ++candidate) {
    const uint8_t* masks = model.masks.data() + candidate * row_bytes;
    uint64_t* const found = buffers[1 - best];
    found[(row_bytes - 1) / 8] = 0;
    compare_chunks<chunk_bytes>(row, masks, model.values.data() + candidate * row_bytes, row_bytes, found);
    if (staged != nullptr)
      for (size_t i = 0; i <= (row_bytes - 1) / 8; ++i) found[i] |= staged->absent[i];
    const uint64_t coded = staged != nullptr ? staged->coded : ~uint64_t{0};
    const uint64_t saved = model.clusters == 1 ? 0 : saved_bits(masks, coded, found, row_bytes);
    if (candidate == 0 || saved > most_saved) most_saved = saved, cluster = candidate, best = 1 - best;
  }
  *excluded = buffers[best];
  return cluster;
}

// Writes a bit for each chunk of a row: 0 if it is excluded. 64 bits at a time.
template <uint32_t chunk_bytes, typename Bits>
STORE_INLINE void put_chunk_bits(const uint64_t* excluded, size_t row_bytes, FastBitWriter& writer) {
  constexpr size_t chunks_in_word = 8 / chunk_bytes;
  const size_t words = (row_bytes + 7) / 8, chunks = row_bytes / chunk_bytes;
  for (size_t first = 0; first < words; first += 64 / chunks_in_word) {
    const size_t here = std::min(words - first, 64 / chunks_in_word);
    uint64_t bits = 0;
    for (size_t i = 0; i < here; ++i)
      bits |= Bits::extract(~excluded[first + i], lowest_bits(chunk_bytes)) << i * chunks_in_word;
    const size_t count = std::min<size_t>(chunks - first * chunks_in_word, 64);
    writer.put(count == 64 ? bits : bits & ((uint64_t{1} << count) - 1), static_cast<int>(count));
  }
}

// Writes a bit for each chunk that is present: 0 if it is excluded.
template <uint32_t chunk_bytes, typename Bits>
STORE_INLINE void put_present_bits(const uint64_t* excluded, const uint64_t* absent, size_t row_bytes,
                                   FastBitWriter& writer) {
  uint64_t bits = 0;
  int count = 0;
  for (size_t i = 0; i < (row_bytes + 7) / 8; ++i) {
    const uint64_t lowest = lowest_bits(chunk_bytes) & ~absent[i];
    bits |= Bits::extract(~excluded[i], lowest) << count;
    count += __builtin_popcountll(lowest);
    if (count <= 64 - 8) continue;
    writer.put(bits, count);
    bits = 0, count = 0;
  }
  writer.put(bits, count);
}

template <uint32_t chunk_bytes, typename Bits, bool has_stages>
STORE_INLINE size_t encode_row(const Model& model, const uint8_t* row, uint8_t* payload) {
  const size_t row_bytes = model.shape.row_bytes();
  std::conditional_t<has_stages, Staged, std::monostate> stages;
  const Staged* staged = nullptr;
  if constexpr (has_stages) {
    if (!apply_stages<chunk_bytes>(model, row, row_bytes, stages)) return 0;
    staged = &stages;
  }
  alignas(64) uint64_t buffers[2][max_row_words];
  const uint64_t* excluded = nullptr;
  const uint32_t cluster = best_cluster<chunk_bytes>(model, staged, row, row_bytes, buffers, &excluded);
  const uint8_t* masks = model.masks.data() + cluster * row_bytes;

  alignas(64) uint8_t stream[stream_buffer_bytes];
  FastBitWriter writer(stream, first_coder_bit);
  writer.put(cluster, model.cluster_bits());
  if (has_stages && model.has_zeros) {
    put_chunk_bits<chunk_bytes, Bits>(staged->absent, row_bytes, writer);
    put_present_bits<chunk_bytes, Bits>(excluded, staged->absent, row_bytes, writer);
  } else {
    put_chunk_bits<chunk_bytes, Bits>(excluded, row_bytes, writer);
  }
  const auto varying = [&](size_t i, uint64_t mask) {
    return has_stages ? (~mask | excluded[i]) & staged->coded & ~staged->absent[i] : ~mask | excluded[i];
  };
  const size_t whole = row_bytes / 8;
  for (size_t i = 0; i < whole; ++i) {
    const uint64_t select = varying(i, load8(masks + 8 * i, 8));
    writer.put(Bits::extract(load8(row + 8 * i, 8), select), __builtin_popcountll(select));
  }
  if (const size_t bytes = row_bytes % 8; bytes != 0) {
    const uint64_t select = varying(whole, load8(masks + 8 * whole, bytes)) & ones_below(bytes);
    writer.put(Bits::extract(load8(row + 8 * whole, bytes), select), __builtin_popcountll(select));
  }
  const size_t bytes = writer.finish();
  if (bytes >= header_bytes + aligned4(row_bytes)) return 0;
  std::memcpy(payload, stream, bytes);
  return bytes;
}

// The ones among the next bits of a stream.
STORE_INLINE size_t count_ones(FastBitReader bits, size_t count) {
  size_t ones = 0;
  for (; count >= 64; count -= 64, bits.skip(64)) ones += static_cast<size_t>(__builtin_popcountll(bits.peek()));
  return ones + static_cast<size_t>(__builtin_popcountll(bits.peek() & ((uint64_t{1} << count) - 1)));
}

template <uint32_t chunk_bytes, typename Bits, bool has_stages>
STORE_INLINE bool decode_row(const Model& model, uint32_t header, const uint8_t* body, size_t body_bytes,
                             uint8_t* row) {
  const size_t row_bytes = model.shape.row_bytes();
  alignas(64) uint8_t stream[stream_buffer_bytes];
  const size_t bits = copy_stream(header, body, body_bytes, row_bytes, stream);
  const size_t chunks = row_bytes / chunk_bytes;
  const bool has_zeros = has_stages && model.has_zeros;
  const TrimPattern trim = has_stages ? model.trim_pattern() : TrimPattern{};
  FastBitReader map(stream, first_coder_bit);
  const int cluster_bits = model.cluster_bits();
  const uint64_t cluster = map.peek() & ((uint64_t{1} << cluster_bits) - 1);
  map.skip(static_cast<size_t>(cluster_bits));
  if (cluster >= model.clusters || map.position() + chunks > bits) return false;
  const uint8_t* masks = model.masks.data() + cluster * row_bytes;
  const uint8_t* values = model.values.data() + cluster * row_bytes;
  FastBitReader participation = map;
  if (has_zeros) participation.skip(chunks);
  FastBitReader fields = participation;
  fields.skip(has_zeros ? count_ones(map, chunks) : chunks);
  if (fields.position() > bits) return false;
  for (size_t at = 0; at < row_bytes; at += 8) {
    const size_t bytes = std::min<size_t>(row_bytes - at, 8);
    const uint64_t mask = load8(masks + at, bytes);
    uint64_t lowest = lowest_bits(chunk_bytes) & ones_below(bytes), present = ones_below(bytes);
    size_t here = bytes / chunk_bytes;
    if (has_zeros) {
      lowest = Bits::deposit(map.peek(), lowest);
      present = whole_chunks<chunk_bytes>(lowest);
      map.skip(here);
      here = static_cast<size_t>(__builtin_popcountll(lowest));
    }
    const uint64_t included = Bits::deposit(participation.peek(), lowest);
    participation.skip(here);
    const uint64_t constant = whole_chunks<chunk_bytes>(included) & mask;
    const uint64_t select = ~(constant | trim.bits) & present;
    const uint64_t word =
        Bits::deposit(fields.peek(), select) | (load8(values + at, bytes) & constant) | (trim.values & present);
    fields.skip(static_cast<size_t>(__builtin_popcountll(select)));
    if (fields.position() > bits) return false;
    if (bytes == 8)
      std::memcpy(row + at, &word, 8);
    else
      std::memcpy(row + at, &word, bytes);
  }
  return aligned4((fields.position() + 7) / 8) <= bits / 8;
}

#define STORE_INVARIANT_PATH(path, Bits, ...)                                                                          \
  namespace path {                                                                                                     \
  template <bool has_stages>                                                                                           \
  __VA_ARGS__ size_t encode(const Model& model, const uint8_t* row, uint8_t* payload) {                                \
    switch (model.chunk_bytes) {                                                                                       \
      case 1: return encode_row<1, Bits, has_stages>(model, row, payload);                                             \
      case 2: return encode_row<2, Bits, has_stages>(model, row, payload);                                             \
      case 4: return encode_row<4, Bits, has_stages>(model, row, payload);                                             \
      default: return encode_row<8, Bits, has_stages>(model, row, payload);                                            \
    }                                                                                                                  \
  }                                                                                                                    \
  template <bool has_stages>                                                                                           \
  __VA_ARGS__ bool decode(const Model& model, uint32_t header, const uint8_t* body, size_t body_bytes, uint8_t* row) { \
    switch (model.chunk_bytes) {                                                                                       \
      case 1: return decode_row<1, Bits, has_stages>(model, header, body, body_bytes, row);                            \
      case 2: return decode_row<2, Bits, has_stages>(model, header, body, body_bytes, row);                            \
      case 4: return decode_row<4, Bits, has_stages>(model, header, body, body_bytes, row);                            \
      default: return decode_row<8, Bits, has_stages>(model, header, body, body_bytes, row);                           \
    }                                                                                                                  \
  }                                                                                                                    \
  RowCoder coder_of(const Model& model) {                                                                              \
    if (model.has_stages()) return {encode<true>, decode<true>};                                                       \
    return {encode<false>, decode<false>};                                                                             \
  }                                                                                                                    \
  }

STORE_INVARIANT_PATH(baseline, Portable, )
#if defined(__x86_64__)
STORE_INVARIANT_PATH(avx2, Bmi2, __attribute__((target("avx2,bmi,bmi2,popcnt,lzcnt"))))
#endif
#undef STORE_INVARIANT_PATH

}  // namespace

#if defined(__x86_64__)
size_t encode_invariant_avx512(const Model& model, const uint8_t* row, uint8_t* payload);
#endif

RowCoder fast_invariant(const Model& model, InstructionSet set) {
#if defined(__x86_64__)
  if (set == InstructionSet::avx512) return {encode_invariant_avx512, avx2::coder_of(model).decode};
  if (set != InstructionSet::baseline) return avx2::coder_of(model);
#endif
  return baseline::coder_of(model);
}

}  // namespace narrowcast::store
