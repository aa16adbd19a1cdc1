// Loads and stores units of data. The user's memory is aligned only to the size of a value.
#pragma once

#include <type_traits>

#include "channel/packet/packets.cuh"

namespace narrowcast::executor::cuda {

using channel::Unit;
using channel::UnitPlace;

// The `Value` of pieces that are aligned and consist of whole words: kernels for these have no code for other pieces.
struct WholeWord {};
template <typename Value>
inline constexpr bool is_whole_word = std::is_same_v<Value, WholeWord>;

// Loads a word of a piece value by value. Bytes beyond the end of the piece are 0.
template <typename Value>
__device__ __forceinline__ uint64_t load_by_values(const char* piece, uint32_t at, uint32_t piece_bytes) {
  uint64_t word = 0;
#pragma unroll
  for (uint32_t byte = 0; byte < 8; byte += sizeof(Value))
    if (at + byte < piece_bytes) word |= uint64_t{*reinterpret_cast<const Value*>(piece + at + byte)} << (8 * byte);
  return word;
}
template <typename Value>
__device__ __forceinline__ void store_by_values(char* piece, uint32_t at, uint32_t piece_bytes, uint64_t word) {
#pragma unroll 1
  for (uint32_t byte = 0; byte < 8 && at + byte < piece_bytes; byte += sizeof(Value), word >>= 8 * (sizeof(Value) % 8))
    *reinterpret_cast<Value*>(piece + at + byte) = static_cast<Value>(word);
}

// Loads the whole words of a unit from a piece that is 8-byte aligned. Words not fully inside the piece are 0. The
// words of a column have one address and constant distances from it.
template <typename Packet>
__device__ __forceinline__ Unit<Packet> load_words(const char* piece, UnitPlace<Packet> place, uint32_t piece_bytes) {
  Unit<Packet> unit;
#pragma unroll
  for (int i = 0; i < Packet::unit_words; ++i) {
    const uint32_t at = place.word_offset(i);
    const char* const column = piece + place.column_offset(i % Packet::word_columns);
    unit.words[i] = at + 8 <= piece_bytes ? *reinterpret_cast<const uint64_t*>(column + place.distance(i)) : 0;
  }
  return unit;
}
template <typename Packet>
__device__ __forceinline__ void store_words(char* piece, UnitPlace<Packet> place, uint32_t piece_bytes,
                                            const Unit<Packet>& unit) {
#pragma unroll
  for (int i = 0; i < Packet::unit_words; ++i) {
    const uint32_t at = place.word_offset(i);
    char* const column = piece + place.column_offset(i % Packet::word_columns);
    if (at + 8 <= piece_bytes) *reinterpret_cast<uint64_t*>(column + place.distance(i)) = unit.words[i];
  }
}
// Loads the partial word at the end of the piece if it belongs to this unit.
template <typename Value, typename Packet>
__device__ __forceinline__ void load_cut_word(const char* piece, UnitPlace<Packet> place, uint32_t piece_bytes,
                                              Unit<Packet>& unit) {
  const uint32_t cut = piece_bytes & ~7u;
  bool has_it = false;
#pragma unroll
  for (int i = 0; i < Packet::unit_words; ++i) has_it = has_it || place.word_offset(i) == cut;
  if (!has_it) return;
  const uint64_t word = load_by_values<Value>(piece, cut, piece_bytes);
#pragma unroll
  for (int i = 0; i < Packet::unit_words; ++i)
    if (place.word_offset(i) == cut) unit.words[i] = word;
}

// aligned: the piece is 8-byte aligned. Then only a partial word waits for its load; otherwise every word does, because
// it is assembled from values.
template <typename Value, typename Packet>
__device__ __forceinline__ Unit<Packet> load_unit(const char* piece, UnitPlace<Packet> place, uint32_t piece_bytes,
                                                  bool aligned) {
  Unit<Packet> unit;
  if constexpr (is_whole_word<Value>) {
    unit = load_words(piece, place, piece_bytes);
  } else if (aligned) {
    unit = load_words(piece, place, piece_bytes);
    if (piece_bytes % 8 != 0) load_cut_word<Value>(piece, place, piece_bytes, unit);
  } else {
#pragma unroll
    for (int i = 0; i < Packet::unit_words; ++i)
      unit.words[i] = load_by_values<Value>(piece, place.word_offset(i), piece_bytes);
  }
  return unit;
}
template <typename Value, typename Packet>
__device__ __forceinline__ void store_unit(char* piece, UnitPlace<Packet> place, uint32_t piece_bytes, bool aligned,
                                           const Unit<Packet>& unit) {
  if constexpr (is_whole_word<Value>) {
    store_words(piece, place, piece_bytes, unit);
  } else {
#pragma unroll
    for (int i = 0; i < Packet::unit_words; ++i) {
      const uint32_t at = place.word_offset(i);
      if (aligned && at + 8 <= piece_bytes) {
        *reinterpret_cast<uint64_t*>(piece + at) = unit.words[i];
      } else if (at < piece_bytes) {
        store_by_values<Value>(piece, at, piece_bytes, unit.words[i]);
      }
    }
  }
}

}  // namespace narrowcast::executor::cuda
