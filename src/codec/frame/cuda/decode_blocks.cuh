// The loop that decoding kernels share: find a block's payload, bring it to shared memory, decode, hand over the values.
#pragma once

#include "codec/frame/cuda/launch.h"
#include "codec/frame/cuda/warps.cuh"

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
         (header.flags & ~(NCAST_CHECKSUM | NCAST_MORE)) == 0 &&
         (header.checksum == 0 || (header.flags & NCAST_CHECKSUM) != 0) &&
         (header.reserved[0] | header.reserved[1] | header.reserved[2]) == 0 && header.wire_bytes <= frame_bytes &&
         header.wire_bytes % format::alignment == 0;
}

// Where the payloads of one warp's blocks are: a lane looks up one block of 32, so that the checks are paid once for them.
class PayloadFinder {
 public:
  __device__ PayloadFinder(const DecodeArguments& arguments, uint32_t block_bytes, uint64_t payload_bytes)
      : payloads_(arguments.payloads),
        blocks_(arguments.expected.blocks),
        block_bytes_(block_bytes),
        payload_units_(static_cast<uint32_t>(payload_bytes / format::alignment)) {}

  struct Place {
    uint32_t begin;  // in units of format::alignment
    uint32_t bytes;  // 0: not what the format allows
  };

  // `block` of `raw_bytes` decoded bytes; this lane alone.
  __device__ Place find(uint32_t block, uint32_t raw_bytes) const {
    Place place;
    if (payloads_.lengths != nullptr) {
      place = {block * (block_bytes_ / static_cast<uint32_t>(format::alignment)), payloads_.lengths[block]};
    } else {
      place.begin = block == 0 ? 0 : payloads_.ends[block - 1];
      const uint32_t end = payloads_.ends[block];
      const bool ordered = end > place.begin && end <= payload_units_ && (block + 1 < blocks_ || end == payload_units_);
      const uint32_t units = min(end - place.begin, 2 * block_bytes_ / static_cast<uint32_t>(format::alignment));
      place.bytes = ordered ? units * static_cast<uint32_t>(format::alignment) : 0;
    }
    const uint32_t stored = static_cast<uint32_t>(format::aligned(raw_bytes));
    const bool fits = place.bytes <= stored && place.bytes % format::alignment == 0 &&
                      (raw_bytes == block_bytes_ || place.bytes == stored);
    if (!fits) place.bytes = 0;
    return place;
  }

 private:
  Payloads payloads_;
  uint32_t blocks_;
  uint32_t block_bytes_, payload_units_;
};

// Runs sink.take(block, its values in shared memory, lane) for every whole block, and
// sink.take_short(block, bytes, its values in global memory, lane) for a last short one.
template <format::window::ValueType Type, typename Sink>
__device__ void decode_blocks(const DecodeArguments& arguments, const Sink& sink) {
  using Block = window::Block<Type>;
  constexpr uint32_t block_bytes = Block::values_bytes;
  extern __shared__ char shared_memory[];
  const int lane = device::lane_id();
  const uint32_t warp = device::warp_id();
  using Memory = WarpMemory<Type, 2>;
  Memory& memory = reinterpret_cast<Memory*>(shared_memory)[warp];
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

  const PayloadFinder finder(arguments, block_bytes, payload_bytes);
  const uint32_t warps = gridDim.x * (blockDim.x / 32);
  const uint32_t whole_blocks = static_cast<uint32_t>(arguments.expected.elems / Type.block_elems());
  uint32_t block = blockIdx.x * (blockDim.x / 32) + warp;

  char *here = memory.buffers[0], *other = memory.buffers[1];  // the block's payload, and its values
  PayloadFinder::Place places{0, 0};                           // of this lane's block among the next 32 of the warp
  uint32_t turn = 0;
  const auto start_load = [&](uint32_t next) -> uint32_t {
    if (turn % 32 == 0) {
      const uint32_t of_lane = next + lane * warps;
      places = of_lane < whole_blocks ? finder.find(of_lane, block_bytes) : PayloadFinder::Place{0, 0};
    }
    const uint32_t bytes = __shfl_sync(device::all_lanes, places.bytes, turn % 32);
    const uint32_t begin = __shfl_sync(device::all_lanes, places.begin, turn % 32);
    ++turn;
    if (bytes != 0) barrier.load(here, arguments.payloads.data + uint64_t{begin} * format::alignment, bytes, lane);
    return bytes;
  };

  uint32_t bytes = start_load(block);
  for (; block < whole_blocks; block += warps) {
    if (bytes != 0) barrier.wait();
    device::wait_for_store_sources(lane);  // of the last block
    char* values = other;
    bool decoded = bytes != 0;
    if (bytes == block_bytes) {  // raw: it leaves from where it is, and the next comes to the other buffer
      values = here;
      here = other;
      other = values;
      device::order_stores_before_bulk_copies();
    } else if (decoded) {
      decoded = Block::decode(here, bytes, other, memory.scratch, lane);
    }
    bytes = start_load(block + warps);
    if (decoded) {
      sink.take(block, values, lane);
    } else if (lane == 0) {
      report_corrupt(arguments.status);
    }
  }
  device::wait_for_store_sources(lane);

  const uint32_t last_bytes = static_cast<uint32_t>(arguments.expected.elems % Type.block_elems()) * Type.value_bytes;
  if (block == whole_blocks && last_bytes != 0) {
    const PayloadFinder::Place last = finder.find(block, last_bytes);
    if (last.bytes != 0) {
      sink.take_short(block, last_bytes, arguments.payloads.data + uint64_t{last.begin} * format::alignment, lane);
    } else if (lane == 0) {
      report_corrupt(arguments.status);
    }
  }
}

}  // namespace narrowcast::codec::cuda
