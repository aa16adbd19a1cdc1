// A table in host memory as readers on the GPU see it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "store/rows/model.h"

namespace narrowcast::store::cuda {

// The memory must be registered with CUDA.
struct ReaderTable {
  const Model* model;
  const uint8_t* slots;     // 128-byte aligned; 16 bytes after the last slot or payload are readable
  uint64_t stride;          // 0: packed
  const uint32_t* offsets;  // packed: capacity + 1, of which those of existing rows are valid
  uint32_t unit_bytes;      // of the offsets; a multiple of 4
  const uint32_t* headers;  // coder raw: one word per row; NULL if no row can move
  const uint8_t* entries;   // of the overflow area; 16-byte aligned
  uint64_t entry_stride;    // a multiple of 16, and room for any payload
  uint64_t entry_count;
  uint64_t typical_bytes;  // packed: 99% of the payloads are not longer
  uint64_t capacity;       // rows, those that are reserved included
  uint64_t rows;

  // NULL if the table is never written.
  const uint64_t* row_count;
  const uint64_t* changes;  // of rows (store/table/control.h)
  const uint64_t* changed_rows;
  const uint32_t* redirects;  // coder raw
  uint64_t* started;          // of the reader
  uint64_t* finished;
};

}  // namespace narrowcast::store::cuda
