// Writing a warp's part of a packed frame.
#pragma once

#include <cstdint>

#include "codec/frame/layout.h"
#include "device/block_codec.cuh"

namespace narrowcast::codec::cuda {

// A payload in the registers of a warp, as vectors of 16 bytes, on its way to memory.
template <device::BlockCodec Codec>
class Outgoing {
 public:
  __device__ void load(const char* payload, uint32_t bytes, int lane) {
#pragma unroll
    for (uint32_t i = 0; i < vectors; ++i)
      if (offset(i, lane) < bytes) vectors_[i] = *reinterpret_cast<const uint4*>(payload + offset(i, lane));
  }
  __device__ void store(char* to, uint32_t bytes, int lane) const {
#pragma unroll
    for (uint32_t i = 0; i < vectors; ++i)
      if (offset(i, lane) < bytes) *reinterpret_cast<uint4*>(to + offset(i, lane)) = vectors_[i];
  }

 private:
  static constexpr uint32_t vectors = Codec::values_bytes / (32 * sizeof(uint4));
  __device__ static uint32_t offset(uint32_t i, int lane) { return (i * 32 + lane) * sizeof(uint4); }
  uint4 vectors_[vectors];
};

// Writes all parts of a frame except the payloads.
struct FrameWriter {
  char* frame;
  format::FrameHeader header;
  uint64_t payload_offset;

  __device__ char* payload_at(uint32_t begin) const {
    return frame + payload_offset + uint64_t{begin} * format::alignment;
  }
  // Writes the end of a block, in units. That of the last block also completes and writes the frame header.
  __device__ void write_end(uint32_t block, uint32_t end, int lane) const { write_ends(block, 1, end, lane); }
  // Writes the ends of `count` neighbouring blocks. Each lane passes one.
  __device__ void write_ends(uint32_t first, uint32_t count, uint32_t end, int lane) const {
    auto* ends = reinterpret_cast<uint32_t*>(frame + sizeof header);
    if (static_cast<uint32_t>(lane) < count) ends[first + lane] = end;
    if (first + count != header.blocks) return;
    if (static_cast<uint32_t>(lane) == count - 1) {
      format::FrameHeader whole = header;
      whole.wire_bytes = payload_offset + uint64_t{end} * format::alignment;
      *reinterpret_cast<format::FrameHeader*>(frame) = whole;
    }
    const uint32_t padding = static_cast<uint32_t>((payload_offset - sizeof header) / sizeof *ends) - header.blocks;
    if (static_cast<uint32_t>(lane) < padding) ends[header.blocks + lane] = 0;
  }
};

}  // namespace narrowcast::codec::cuda
