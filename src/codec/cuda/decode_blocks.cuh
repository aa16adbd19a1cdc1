// The loop that decoding kernels share: find a block's payload, bring it to shared memory, decode, hand over the values.
#pragma once

#include "codec/cuda/launch.h"
#include "codec/cuda/warps.cuh"

namespace narrowcast::codec::cuda {

struct DecodeArguments {
  Payloads payloads;
  const format::FrameHeader* header;  // NULL for slots
  format::FrameHeader expected;
  ncast_device_status* status;
};

// Marks the result. Every corrupt frame gives the same word, so the race between blocks does not matter.
__device__ inline void report_corrupt(ncast_device_status* status) { *status = NCAST_CORRUPT; }

// Whether a frame's header says what the caller expects, and the frame fits the bytes that are there.
__device__ inline bool header_matches(const format::FrameHeader& header, const format::FrameHeader& expected,
                                      uint64_t frame_bytes) {
  return header.magic == expected.magic && header.version == expected.version && header.codec == expected.codec &&
         header.dtype == expected.dtype && header.elems == expected.elems &&
         header.block_elems == expected.block_elems && header.blocks == expected.blocks &&
         (header.flags & ~(NCAST_CHECKSUM | NCAST_MORE)) == 0 && header.wire_bytes <= frame_bytes &&
         header.wire_bytes % format::alignment == 0;
}

struct Located {
  const char* payload;
  uint32_t bytes;  // 0: not where the format lets it be
};

__device__ inline Located locate(const DecodeArguments& arguments, uint64_t block, uint32_t block_bytes,
                                 uint32_t raw_bytes, uint64_t payload_bytes) {
  const Payloads& payloads = arguments.payloads;
  uint64_t begin, bytes;
  if (payloads.lengths != nullptr) {
    begin = block * block_bytes;
    bytes = payloads.lengths[block];
  } else {
    const uint32_t first = block == 0 ? 0 : payloads.ends[block - 1], last = payloads.ends[block];
    begin = uint64_t{first} * format::alignment;
    bytes = last > first ? uint64_t{last - first} * format::alignment : 0;
    if (begin + bytes > payload_bytes) bytes = 0;
    if (block + 1 == arguments.expected.blocks && begin + bytes != payload_bytes) bytes = 0;
  }
  const uint32_t stored = static_cast<uint32_t>(format::aligned(raw_bytes));
  const bool fits = bytes <= stored && bytes % format::alignment == 0 && (raw_bytes == block_bytes || bytes == stored);
  return {payloads.data + begin, fits ? static_cast<uint32_t>(bytes) : 0};
}

// Runs sink.take(first value of the block, its bytes, where in shared memory, lane) for every whole block, and
// sink.take_short(first value, bytes, where in global memory, lane) for a last short one. sink.reads_async says that
// take() left a bulk store reading the values.
template <format::window::ValueType Type, typename Sink>
__device__ void decode_blocks(const DecodeArguments& arguments, const Sink& sink) {
  using Block = window::Block<Type>;
  constexpr uint32_t block_bytes = Block::values_bytes;
  extern __shared__ char shared_memory[];
  const int lane = device::lane_id();
  WarpMemory<Type>& memory = reinterpret_cast<WarpMemory<Type>*>(shared_memory)[threadIdx.x / 32];
  device::LoadBarrier barrier(&memory.barrier, lane);

  uint64_t payload_bytes = 0;
  if (arguments.header != nullptr) {
    const uint64_t payload_offset = arguments.payloads.data - reinterpret_cast<const char*>(arguments.header);
    if (!header_matches(*arguments.header, arguments.expected, arguments.payloads.data_bytes + payload_offset) ||
        arguments.header->wire_bytes < payload_offset) {
      report_corrupt(arguments.status);
      return;
    }
    payload_bytes = arguments.header->wire_bytes - payload_offset;
  }

  const uint64_t warps = uint64_t{gridDim.x} * warps_per_cta<Type>;
  const uint64_t whole_blocks = arguments.expected.elems / Type.block_elems();
  uint64_t block = uint64_t{threadIdx.x / 32} * gridDim.x + blockIdx.x;

  const auto find = [&](uint64_t which) {
    return which < whole_blocks ? locate(arguments, which, block_bytes, block_bytes, payload_bytes) : Located{nullptr, 0};
  };
  const auto start_load = [&](const Located& where) {
    if (where.bytes != 0) barrier.load(memory.payload, where.payload, where.bytes, lane);
  };

  Located here = find(block);
  start_load(here);
  for (; block < whole_blocks; block += warps) {
    const Located next = find(block + warps);  // its latency passes under the decoding
    bool decoded = here.bytes != 0;
    if (decoded) barrier.wait();
    const bool raw = here.bytes == block_bytes;
    if (raw) {
      sink.take(block, memory.payload, lane);
    } else if (decoded) {
      device::wait_for_store_sources(lane);  // of the last block's values
      decoded = Block::decode(memory.payload, here.bytes, memory.values, lane);
    }
    if (raw) device::wait_for_store_sources(lane);
    start_load(next);
    if (!raw && decoded) sink.take(block, memory.values, lane);
    if (!decoded && lane == 0) report_corrupt(arguments.status);
    here = next;
  }
  device::wait_for_stores(lane);

  const uint32_t last_bytes = static_cast<uint32_t>(arguments.expected.elems % Type.block_elems()) * Type.value_bytes;
  if (block == whole_blocks && last_bytes != 0) {
    const Located last = locate(arguments, block, block_bytes, last_bytes, payload_bytes);
    if (last.bytes != 0) {
      sink.take_short(block, last_bytes, last.payload, lane);
    } else if (lane == 0) {
      report_corrupt(arguments.status);
    }
  }
}

}  // namespace narrowcast::codec::cuda
