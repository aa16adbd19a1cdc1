// Rows that a table is built from.
#pragma once

#include <cstdint>

namespace narrowcast::store {

// Rows in memory. A builder with a PieceEncoder also takes rows in the memory of its device.
struct RowBlock {
  const uint8_t* rows;
  uint64_t stride;  // bytes from one row to the next
  uint64_t count;
};

}  // namespace narrowcast::store
