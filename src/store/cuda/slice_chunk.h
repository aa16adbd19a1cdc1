// Divides slices into the chunks that the copy engine moves.
#pragma once

#include <cstdint>

#include "store/cuda/reader_table.h"

namespace narrowcast::store::cuda {

// Some rows of a slice, and where their slots are.
struct SliceChunk {
  uint64_t next;   // the row after the last one
  uint64_t begin;  // offset in the table's slots: a multiple of 16, so that slots keep their alignment
  uint64_t bytes;  // from there; 16 more than the slots have
};

// The chunk that begins with `row` of the rows before `end`: as many rows as fit into `most_bytes`, at least one. A row
// that is longer, which only damaged tables have, is cut.
SliceChunk slice_chunk(const ReaderTable& table, uint64_t row, uint64_t end, uint64_t most_bytes);

}  // namespace narrowcast::store::cuda
