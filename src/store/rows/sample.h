// A sample of a table's rows, in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "store/rows/fit.h"

namespace narrowcast::store {

struct Sample {
  uint64_t row_bytes;
  uint64_t count;
  std::vector<uint8_t> rows;  // end to end

  const uint8_t* row(uint64_t index) const { return rows.data() + index * row_bytes; }
};

// Takes runs of adjacent rows that are spread evenly over the table. Deterministic.
Sample take_sample(const RowShape& shape, RowSource& source, uint64_t rows, bool whole_source);

}  // namespace narrowcast::store
