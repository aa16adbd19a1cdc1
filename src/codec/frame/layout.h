// The layout of a frame: header, block ends, payloads. docs/format/frame.md is the specification.
#pragma once

#include <cstddef>
#include <cstdint>

#include "narrowcast/codec.h"

namespace narrowcast::format {

inline constexpr uint32_t frame_magic = 0x5453434e;  // "NCST" in memory order
inline constexpr uint8_t frame_version = 1;
inline constexpr size_t alignment = NCAST_FRAME_ALIGN;
inline constexpr size_t checksum_offset = 32;
inline constexpr size_t wire_bytes_offset = 16;

constexpr uint64_t aligned(uint64_t bytes) { return (bytes + (alignment - 1)) & ~uint64_t{alignment - 1}; }

// Little-endian, as all numbers of the format.
struct FrameHeader {
  uint32_t magic;
  uint8_t version;
  uint8_t codec;
  uint8_t dtype;
  uint8_t flags;
  uint64_t elems;
  uint64_t wire_bytes;
  uint32_t block_elems;
  uint32_t blocks;
  uint64_t checksum;
  uint64_t parameters;  // of the codec: bits 16 to 63 of explicit_parameters()
  uint64_t reserved[2];
};
static_assert(sizeof(FrameHeader) == NCAST_FRAME_HEADER_BYTES);
static_assert(offsetof(FrameHeader, wire_bytes) == wire_bytes_offset);
static_assert(offsetof(FrameHeader, checksum) == checksum_offset);

// Block ends are 32-bit numbers in units of 16 bytes. The limit is half of their range, so that sums do not overflow.
inline constexpr uint64_t max_raw_bytes = uint64_t{1} << 35;

// The parts of a frame with a variable payload.
struct FrameLayout {
  uint32_t block_elems;
  uint64_t blocks;
  uint64_t payload_offset;  // from the start of the frame
};
constexpr FrameLayout frame_layout(uint64_t elems, uint32_t block_elems) {
  const uint64_t blocks = (elems + block_elems - 1) / block_elems;
  return {block_elems, blocks, sizeof(FrameHeader) + aligned(blocks * sizeof(uint32_t))};
}

}  // namespace narrowcast::format
