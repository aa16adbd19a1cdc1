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

inline constexpr uint64_t least_copied = 1 << 20, most_copied = 16 << 20;  // bytes of a chunk, if there are more

// Bytes of the slots of rows [row, end).
uint64_t slice_bytes(const ReaderTable& table, uint64_t row, uint64_t end);

// How many of the `left` bytes of a slice the next chunk has, after one of `previous` bytes (0: the first). Chunks grow
// at first, because nothing is decoded until the first one is there, and become smaller towards the end, because what
// is decoded after the last copy is not hidden. They do so slowly: 4 SMs decode a copy in 0.5 to 0.8 of its time, which
// the next copy should hide. But each costs the copy engine more than 2 us.
constexpr uint64_t copied_next(uint64_t left, uint64_t previous) {
  const uint64_t most = std::clamp(2 * previous, least_copied, most_copied);
  const uint64_t part = std::clamp(left / 3, least_copied, most);
  return left <= part + least_copied / 2 ? std::min(left, most_copied) : part;
}
// The most bytes of a chunk of any slice of a table with so many bytes.
constexpr uint64_t longest_chunk(uint64_t table_bytes) {
  return std::clamp(table_bytes / 3, least_copied * 3 / 2, most_copied);
}
inline constexpr uint64_t chunk_margin = 128;  // a chunk of rows may have so many more, for the bytes around them

// The chunk that begins with `row` of the rows before `end`: as many rows as fit into `most_bytes`, of which 32 are
// room around the rows, and at least one. A row that is longer, which only damaged tables have, is cut.
SliceChunk slice_chunk(const ReaderTable& table, uint64_t row, uint64_t end, uint64_t most_bytes);

// How many bytes of a frame with block ends come before the payload of block `block`, which may be the number of
// blocks; 0 for the first one. Of damaged frames: at most frame_bytes.
uint64_t bytes_before_block(const uint8_t* frame, uint64_t frame_bytes, uint64_t payload_offset, uint64_t block);

}  // namespace narrowcast::store::cuda
