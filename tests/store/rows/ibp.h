// The sizes of rows under Invariant Bit Packing (IBP, EuroSys 2026), as its code writes them, to compare ours with.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

namespace narrowcast::tests {

// The bytes of all rows with chunks of `chunk_bytes` (4 or 8, a divisor of row_bytes) and one threshold: a bit of the
// row is invariant if more than threshold x rows have it set, or fewer than (1 - threshold) x rows.
inline double ibp_bytes(const uint8_t* rows, uint64_t count, uint64_t row_bytes, uint64_t chunk_bytes,
                        double threshold) {
  const uint64_t chunks = row_bytes / chunk_bytes;
  const auto chunk_at = [&](uint64_t row, uint64_t chunk) {
    uint64_t bits = 0;
    std::memcpy(&bits, rows + row * row_bytes + chunk * chunk_bytes, chunk_bytes);
    return bits;
  };
  std::vector<uint64_t> masks(chunks), values(chunks);
  for (uint64_t chunk = 0; chunk < chunks; ++chunk) {
    std::array<uint64_t, 64> ones{};
    for (uint64_t row = 0; row < count; ++row)
      for (uint64_t bits = chunk_at(row, chunk); bits != 0; bits &= bits - 1)
        ++ones[static_cast<size_t>(std::countr_zero(bits))];
    for (uint64_t bit = 0; bit < 8 * chunk_bytes; ++bit) {
      const auto set = static_cast<double>(ones[bit]), all = static_cast<double>(count);
      const bool one = set > threshold * all, zero = set < (1 - threshold) * all;
      if (one || zero) masks[chunk] |= uint64_t{1} << bit;
      if (one) values[chunk] |= uint64_t{1} << bit;
    }
  }
  const auto words = [&](uint64_t bits) { return (bits + 8 * chunk_bytes - 1) / (8 * chunk_bytes) * chunk_bytes; };
  uint64_t bytes = 0;
  for (uint64_t row = 0; row < count; ++row) {
    uint64_t bits = 0;
    for (uint64_t chunk = 0; chunk < chunks; ++chunk) {
      bits += 8 * chunk_bytes;
      if ((chunk_at(row, chunk) & masks[chunk]) == values[chunk])
        bits -= static_cast<uint64_t>(std::popcount(masks[chunk]));
    }
    bytes += std::min(row_bytes, words(chunks) + words(bits));
  }
  return static_cast<double>(bytes) + static_cast<double>(count) / 8;  // one bit a row says whether it is packed
}

// With the best of IBP's thresholds and chunk sizes.
inline double ibp_bytes(const uint8_t* rows, uint64_t count, uint64_t row_bytes) {
  double least = static_cast<double>(count * row_bytes) + static_cast<double>(count) / 8;
  for (const uint64_t chunk_bytes : {uint64_t{4}, uint64_t{8}})
    if (row_bytes % chunk_bytes == 0)
      for (int percent = 70; percent <= 95; percent += 5)
        least = std::min(least, ibp_bytes(rows, count, row_bytes, chunk_bytes, percent / 100.0));
  return least;
}

}  // namespace narrowcast::tests
