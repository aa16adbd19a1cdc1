#include "store/rows/stride.h"

#include <algorithm>
#include <vector>

namespace narrowcast::store {
namespace {

constexpr size_t line_bytes = 128;
constexpr size_t offset_bytes = 4;

size_t rounded_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// The lines that contain `bytes` from a multiple of `apart` on, which is one of packed_unit_bytes: the average over the
// positions in the first line.
double fetched_bytes(size_t bytes, size_t apart) {
  size_t lines = 0;
  constexpr size_t places = line_bytes / packed_unit_bytes;  // then the positions repeat
  for (size_t place = 0; place < places; ++place) {
    const size_t begin = place * apart, end = begin + bytes;
    lines += (end + line_bytes - 1) / line_bytes - begin / line_bytes;
  }
  return static_cast<double>(lines * line_bytes) / static_cast<double>(places);
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
                          fetched_bytes(stride, stride) + overflow * fetched_bytes(entry, entry)};
    if (best.stride_bytes == 0 ||
        plan.stored_row_bytes + plan.fetched_row_bytes < best.stored_row_bytes + best.fetched_row_bytes)
      best = plan;
  }
  return best;
}

PackedPlan packed_plan(std::span<const uint32_t> payload_bytes) {
  size_t total = 0;
  for (const uint32_t bytes : payload_bytes) total += rounded_up(bytes, packed_unit_bytes) + offset_bytes;
  std::vector<uint32_t> sorted(payload_bytes.begin(), payload_bytes.end());
  const auto typical = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() * typical_percent / 100);
  std::ranges::nth_element(sorted, typical);
  return {static_cast<double>(total) / static_cast<double>(payload_bytes.size()),
          fetched_bytes(rounded_up(*typical, packed_unit_bytes), packed_unit_bytes)};
}

}  // namespace narrowcast::store
