#include "store/rows/sample.h"

#include <algorithm>

namespace narrowcast::store {
namespace {

constexpr uint64_t least_rows = 256;
constexpr uint64_t most_bytes = uint64_t{32} << 20;
// Rows that are read with one call: files are read in larger pieces, and the runs still cover the table.
constexpr uint64_t run_rows = 16;

}  // namespace

Sample take_sample(const RowShape& shape, RowSource& source, uint64_t rows, bool whole_source) {
  const uint64_t row_bytes = shape.row_bytes();
  uint64_t count = rows;
  if (!whole_source) {
    count = std::min(rows, std::max(rows / 10, least_rows));
    count = std::min(count, std::max(most_bytes / row_bytes, least_rows));
  }
  Sample sample{row_bytes, count, std::vector<uint8_t>(count * row_bytes)};
  const uint64_t runs = count == rows ? 1 : (count + run_rows - 1) / run_rows;
  for (uint64_t run = 0; run < runs; ++run) {
    const uint64_t begin = run * count / runs, end = (run + 1) * count / runs;
    // Run r starts at r/runs of the rows that do not belong to a run, after the rows of the earlier runs.
    const auto gap =
        static_cast<uint64_t>(static_cast<__uint128_t>(rows - count) * run / std::max<uint64_t>(runs - 1, 1));
    source.read(gap + begin, end - begin, sample.rows.data() + begin * row_bytes);
  }
  return sample;
}

}  // namespace narrowcast::store
