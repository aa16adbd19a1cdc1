// Some rows of a table, in memory.
#pragma once

#include <cstdint>
#include <vector>

namespace narrowcast::store {

struct Sample {
  uint64_t row_bytes;
  uint64_t count;
  std::vector<uint8_t> rows;  // end to end

  const uint8_t* row(uint64_t index) const { return rows.data() + index * row_bytes; }
};

}  // namespace narrowcast::store
