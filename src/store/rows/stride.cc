#include "store/rows/stride.h"

#include <vector>

namespace narrowcast::store {
namespace {

constexpr size_t line_bytes = 128;
constexpr size_t offset_bytes = 4;

size_t rounded_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Average over the positions that slots have in their first line.
double fetched_bytes(size_t stride) {
  size_t lines = 0;
  constexpr size_t slots = line_bytes / stride_unit_bytes;  // then the positions repeat
  for (size_t slot = 0; slot < slots; ++slot) {
    const size_t begin = slot * stride, end = begin + stride;
    lines += (end + line_bytes - 1) / line_bytes - begin / line_bytes;
  }
  return static_cast<double>(lines * line_bytes) / static_cast<double>(slots);
}

}  // namespace

StridePlan best_stride(std::span<const uint32_t> payload_bytes, size_t bound) {
  const size_t entry = rounded_up(bound, stride_unit_bytes);
  std::vector<size_t> by_units(entry / stride_unit_bytes + 1);
  for (const uint32_t bytes : payload_bytes) ++by_units[rounded_up(bytes, stride_unit_bytes) / stride_unit_bytes];

  const auto rows = static_cast<double>(payload_bytes.size());
  StridePlan best{};
  size_t overflow_rows = payload_bytes.size() - by_units[0];
  for (size_t units = 1; units < by_units.size(); ++units) {
    overflow_rows -= by_units[units];
    const size_t stride = units * stride_unit_bytes;
    const double overflow = static_cast<double>(overflow_rows) / rows;
    const StridePlan plan{stride, overflow_rows, static_cast<double>(stride) + overflow * static_cast<double>(entry),
                          fetched_bytes(stride) + overflow * fetched_bytes(entry)};
    if (best.stride_bytes == 0 ||
        plan.stored_row_bytes + plan.fetched_row_bytes < best.stored_row_bytes + best.fetched_row_bytes)
      best = plan;
  }
  return best;
}

double packed_row_bytes(std::span<const uint32_t> payload_bytes) {
  size_t total = 0;
  for (const uint32_t bytes : payload_bytes) total += rounded_up(bytes, packed_unit_bytes) + offset_bytes;
  return static_cast<double>(total) / static_cast<double>(payload_bytes.size());
}

}  // namespace narrowcast::store
