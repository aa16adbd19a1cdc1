#include "store/cuda/slice_chunk.h"

#include <algorithm>
#include <cstring>

#include "codec/frame/layout.h"

namespace narrowcast::store::cuda {

namespace {

uint64_t begin_of(const ReaderTable& table, uint64_t row) {
  return table.stride != 0 ? row * table.stride : uint64_t{table.offsets[row]} * table.unit_bytes;
}

}  // namespace

uint64_t slice_bytes(const ReaderTable& table, uint64_t row, uint64_t end) {
  const uint64_t from = begin_of(table, row), to = begin_of(table, end);
  return to > from ? to - from : 0;  // offsets of damaged tables may decrease
}

SliceChunk slice_chunk(const ReaderTable& table, uint64_t row, uint64_t end, uint64_t most_bytes) {
  const uint64_t begin = begin_of(table, row) / 16 * 16, most_end = begin + most_bytes - 32;
  uint64_t next = end;
  if (table.stride != 0) {
    next = std::min(end, row + std::max<uint64_t>((most_bytes - 32) / table.stride, 1));
  } else if (begin_of(table, end) > most_end) {
    const uint32_t* const beyond =
        std::upper_bound(table.offsets + row, table.offsets + end, most_end / table.unit_bytes);
    next = std::max<uint64_t>(static_cast<uint64_t>(beyond - table.offsets) - 1, row + 1);
  }
  return {next, begin, std::min(begin_of(table, next) - begin + 16, most_bytes)};
}

uint64_t bytes_before_block(const uint8_t* frame, uint64_t frame_bytes, uint64_t payload_offset, uint64_t block) {
  if (block == 0) return 0;
  const uint64_t end_at = sizeof(format::FrameHeader) + (block - 1) * sizeof(uint32_t);
  if (end_at + sizeof(uint32_t) > frame_bytes) return frame_bytes;
  uint32_t end = 0;
  std::memcpy(&end, frame + end_at, sizeof end);
  return std::min(frame_bytes, payload_offset + uint64_t{end} * format::alignment);
}

}  // namespace narrowcast::store::cuda
