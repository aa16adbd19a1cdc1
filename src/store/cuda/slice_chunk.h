// Divides slices into the chunks that the copy engine moves.
#pragma once

#include <algorithm>
#include <cstdint>

#include "store/cuda/reader_table.h"

namespace narrowcast::store::cuda {

// Some rows of a slice, and where their slots are.
struct SliceChunk {
  uint64_t next;   // the row after the last one
  uint64_t begin;  // offset in the table's slots: a multiple of 16, so that slots keep their alignment
  uint64_t bytes;  // from there; 16 more than the slots have
};

inline constexpr uint64_t least_copied = 1 << 20, most_copied = 8 << 20;  // bytes of a chunk, if there are more
// For a chunk with the bytes around it: the distance of the ring's buffers. A whole number of lines, because gather
// kernels fetch as many lines of a slot as it has in the table.
inline constexpr uint64_t chunk_room = most_copied + 128;
static_assert(chunk_room % 128 == 0);

// Bytes of the slots of rows [row, end).
uint64_t slice_bytes(const ReaderTable& table, uint64_t row, uint64_t end);

// Bytes that kernels read from host memory themselves, while the first chunks are copied.
inline constexpr uint64_t head_bytes = 2 << 20;

// How many of the `left` bytes of a slice the next chunk has, after one of `previous` bytes (0: the first). Chunks grow
// at first, because nothing is decoded until the first one is there, and become smaller towards the end, where nothing
// hides their decoding; but each costs the copy engine more than 2 us.
constexpr uint64_t copied_next(uint64_t left, uint64_t previous) {
  const uint64_t most = std::clamp(2 * previous, least_copied, most_copied);
  const uint64_t half = std::clamp(left / 2, least_copied, most);
  return left <= half + least_copied / 2 ? std::min(left, most_copied) : half;
}

// The chunk that begins with `row` of the rows before `end`: as many rows as fit into `most_bytes`, of which 32 are
// room around the rows, and at least one. A row that is longer, which only damaged tables have, is cut.
SliceChunk slice_chunk(const ReaderTable& table, uint64_t row, uint64_t end, uint64_t most_bytes);

}  // namespace narrowcast::store::cuda
