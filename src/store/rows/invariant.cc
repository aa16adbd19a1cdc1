// The fast coder `invariant`: eight bytes of a row at a time, whatever the size of the chunks.
#include <algorithm>
#include <cstring>

#include "store/rows/bit_stream.h"
#include "store/rows/fast.h"

namespace narrowcast::store {
namespace {

#define STORE_INLINE inline __attribute__((always_inline))

// Moves the bits of `bits` where `select` is 1 to the bottom, and back.
struct Portable {
  static STORE_INLINE uint64_t extract(uint64_t bits, uint64_t select) {
    uint64_t result = 0;
    for (int to = 0; select != 0; select &= select - 1, ++to) result |= (bits >> __builtin_ctzll(select) & 1) << to;
    return result;
  }
  static STORE_INLINE uint64_t deposit(uint64_t bits, uint64_t select) {
    uint64_t result = 0;
    for (; select != 0; select &= select - 1, bits >>= 1) result |= (bits & 1) << __builtin_ctzll(select);
    return result;
  }
};

#if defined(__x86_64__)
// In assembly, because intrinsics cannot be inlined into templates that are compiled for every instruction set.
struct Bmi2 {
  static STORE_INLINE uint64_t extract(uint64_t bits, uint64_t select) {
    uint64_t result;
    asm("pext %2, %1, %0" : "=r"(result) : "r"(bits), "r"(select));
    return result;
  }
  static STORE_INLINE uint64_t deposit(uint64_t bits, uint64_t select) {
    uint64_t result;
    asm("pdep %2, %1, %0" : "=r"(result) : "r"(bits), "r"(select));
    return result;
  }
};
#endif

STORE_INLINE uint64_t load8(const uint8_t* bytes, size_t count) {
  uint64_t word = 0;
  if (count >= sizeof word)
    std::memcpy(&word, bytes, sizeof word);
  else
    std::memcpy(&word, bytes, count);
  return word;
}

// 1 in the lowest bit of each of the chunks in a word.
constexpr uint64_t lowest_bits(uint32_t chunk_bytes) {
  switch (chunk_bytes) {
    case 1: return 0x0101010101010101;
    case 2: return 0x0001000100010001;
    case 4: return 0x0000000100000001;
    default: return 1;
  }
}

// A word with all bits of a chunk set if the chunk of `word` is not 0.
template <uint32_t chunk_bytes>
STORE_INLINE uint64_t chunks_not_zero(uint64_t word) {
  // Folds the bits of each chunk into its lowest bit. Bits from the next chunk enter at the top only and do not get
  // there.
  if constexpr (chunk_bytes >= 8) word |= word >> 32;
  if constexpr (chunk_bytes >= 4) word |= word >> 16 & (chunk_bytes == 8 ? ~uint64_t{0} : 0x0000ffff0000ffff);
  if constexpr (chunk_bytes >= 2) word |= word >> 8 & (chunk_bytes == 2 ? 0x00ff00ff00ff00ff : ~uint64_t{0});
  word |= word >> 4 & 0x0f0f0f0f0f0f0f0f;
  word |= word >> 2 & 0x3f3f3f3f3f3f3f3f;
  word |= word >> 1;
  const uint64_t set = word & lowest_bits(chunk_bytes);
  if constexpr (chunk_bytes == 8) return uint64_t{0} - set;
  return (set << (8 * chunk_bytes % 64)) - set;
}

STORE_INLINE uint64_t ones_below(size_t bytes) { return bytes == 8 ? ~uint64_t{0} : (uint64_t{1} << 8 * bytes) - 1; }

template <uint32_t chunk_bytes, typename Bits>
STORE_INLINE size_t encode_row(const Model& model, const uint8_t* row, uint8_t* payload) {
  const size_t row_bytes = model.shape.row_bytes();
  uint32_t cluster = 0;
  if (model.clusters > 1) {
    uint64_t most_saved = 0;
    for (uint32_t candidate = 0; candidate < model.clusters; ++candidate) {
      const uint8_t* masks = model.masks.data() + candidate * row_bytes;
      const uint8_t* values = model.values.data() + candidate * row_bytes;
      uint64_t saved = 0;
      for (size_t at = 0; at < row_bytes; at += 8) {
        const size_t bytes = std::min<size_t>(row_bytes - at, 8);
        const uint64_t mask = load8(masks + at, bytes);
        const uint64_t differs = (load8(row + at, bytes) & mask) ^ load8(values + at, bytes);
        saved += static_cast<uint64_t>(__builtin_popcountll(mask & ~chunks_not_zero<chunk_bytes>(differs)));
      }
      if (candidate == 0 || saved > most_saved) most_saved = saved, cluster = candidate;
    }
  }
  const uint8_t* masks = model.masks.data() + cluster * row_bytes;
  const uint8_t* values = model.values.data() + cluster * row_bytes;

  alignas(64) uint8_t stream[stream_buffer_bytes];
  FastBitWriter writer(stream, first_coder_bit);
  writer.put(cluster, model.cluster_bits());
  for (size_t at = 0; at < row_bytes; at += 8) {
    const size_t bytes = std::min<size_t>(row_bytes - at, 8);
    const uint64_t differs = (load8(row + at, bytes) & load8(masks + at, bytes)) ^ load8(values + at, bytes);
    const uint64_t excluded = chunks_not_zero<chunk_bytes>(differs);
    const auto chunks = static_cast<int>(bytes / chunk_bytes);
    writer.put(Bits::extract(~excluded, lowest_bits(chunk_bytes) & ones_below(bytes)), chunks);
  }
  for (size_t at = 0; at < row_bytes; at += 8) {
    const size_t bytes = std::min<size_t>(row_bytes - at, 8);
    const uint64_t mask = load8(masks + at, bytes), word = load8(row + at, bytes);
    const uint64_t excluded = chunks_not_zero<chunk_bytes>((word & mask) ^ load8(values + at, bytes));
    const uint64_t select = (~mask | excluded) & ones_below(bytes);
    writer.put(Bits::extract(word, select), __builtin_popcountll(select));
  }
  const size_t bytes = writer.finish();
  if (bytes >= header_bytes + aligned4(row_bytes)) return 0;
  std::memcpy(payload, stream, bytes);
  return bytes;
}

template <uint32_t chunk_bytes, typename Bits>
STORE_INLINE bool decode_row(const Model& model, uint32_t header, const uint8_t* body, size_t body_bytes,
                             uint8_t* row) {
  const size_t row_bytes = model.shape.row_bytes();
  alignas(64) uint8_t stream[stream_buffer_bytes];
  const size_t bits = copy_stream(header, body, body_bytes, row_bytes, stream);
  FastBitReader chunks(stream, first_coder_bit);
  const int cluster_bits = model.cluster_bits();
  const uint64_t cluster = chunks.peek() & ((uint64_t{1} << cluster_bits) - 1);
  chunks.skip(static_cast<size_t>(cluster_bits));
  if (cluster >= model.clusters || chunks.position() + row_bytes / chunk_bytes > bits) return false;
  const uint8_t* masks = model.masks.data() + cluster * row_bytes;
  const uint8_t* values = model.values.data() + cluster * row_bytes;
  FastBitReader fields(stream, chunks.position() + row_bytes / chunk_bytes);
  for (size_t at = 0; at < row_bytes; at += 8) {
    const size_t bytes = std::min<size_t>(row_bytes - at, 8);
    const uint64_t mask = load8(masks + at, bytes);
    const uint64_t included = Bits::deposit(chunks.peek(), lowest_bits(chunk_bytes) & ones_below(bytes));
    chunks.skip(bytes / chunk_bytes);
    const uint64_t constant = chunks_not_zero<chunk_bytes>(included) & mask;
    const uint64_t select = ~constant & ones_below(bytes);
    const uint64_t word = Bits::deposit(fields.peek(), select) | (load8(values + at, bytes) & constant);
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
  __VA_ARGS__ size_t encode(const Model& model, const uint8_t* row, uint8_t* payload) {                                \
    switch (model.chunk_bytes) {                                                                                       \
      case 1: return encode_row<1, Bits>(model, row, payload);                                                         \
      case 2: return encode_row<2, Bits>(model, row, payload);                                                         \
      case 4: return encode_row<4, Bits>(model, row, payload);                                                         \
      default: return encode_row<8, Bits>(model, row, payload);                                                        \
    }                                                                                                                  \
  }                                                                                                                    \
  __VA_ARGS__ bool decode(const Model& model, uint32_t header, const uint8_t* body, size_t body_bytes, uint8_t* row) { \
    switch (model.chunk_bytes) {                                                                                       \
      case 1: return decode_row<1, Bits>(model, header, body, body_bytes, row);                                        \
      case 2: return decode_row<2, Bits>(model, header, body, body_bytes, row);                                        \
      case 4: return decode_row<4, Bits>(model, header, body, body_bytes, row);                                        \
      default: return decode_row<8, Bits>(model, header, body, body_bytes, row);                                       \
    }                                                                                                                  \
  }                                                                                                                    \
  }

STORE_INVARIANT_PATH(baseline, Portable, )
#if defined(__x86_64__)
STORE_INVARIANT_PATH(avx2, Bmi2, __attribute__((target("avx2,bmi,bmi2,popcnt,lzcnt"))))
#endif
#undef STORE_INVARIANT_PATH

}  // namespace

RowCoder fast_invariant(InstructionSet set) {
#if defined(__x86_64__)
  if (set == InstructionSet::avx2) return {avx2::encode, avx2::decode};
#endif
  return {baseline::encode, baseline::decode};
}

}  // namespace narrowcast::store
