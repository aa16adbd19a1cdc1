#include "store/cuda/slice_chunk.h"

#include <algorithm>

namespace narrowcast::store::cuda {

SliceChunk slice_chunk(const ReaderTable& table, uint64_t row, uint64_t end, uint64_t most_bytes) {
  const auto begin_of = [&](uint64_t of) {
    return table.stride != 0 ? of * table.stride : uint64_t{table.offsets[of]} * table.unit_bytes;
  };
  const uint64_t begin = begin_of(row) / 16 * 16, most_end = begin + most_bytes - 32;
  uint64_t next = end;
  if (table.stride != 0) {
    next = std::min(end, row + std::max<uint64_t>((most_bytes - 32) / table.stride, 1));
  } else if (begin_of(end) > most_end) {
    const uint32_t* const beyond =
        std::upper_bound(table.offsets + row, table.offsets + end, most_end / table.unit_bytes);
    next = std::max<uint64_t>(static_cast<uint64_t>(beyond - table.offsets) - 1, row + 1);
  }
  return {next, begin, std::min(begin_of(next) - begin + 16, most_bytes)};
}

}  // namespace narrowcast::store::cuda
