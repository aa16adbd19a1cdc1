// The loop of the decoding kernels: find a block's payload, load it to shared memory, decode it, and pass the values to
// a sink.
#pragma once

#include "codec/frame/cuda/header_check.cuh"
#include "codec/frame/cuda/launch.h"
#include "codec/frame/cuda/warps.cuh"

namespace narrowcast::codec::cuda {

// Finds the payloads of a warp's blocks. Each lane finds and checks one of 32 blocks, so the checks run once per 32
// blocks.
template <BlockCodec Codec>
class PayloadFinder {
 public:
  // payload_bytes: total size of the payloads of a packed frame.
  __device__ PayloadFinder(const DecodeArguments& arguments, const device::Parameters<Codec>& parameters,
                           uint64_t payload_bytes)
      : payloads_(arguments.payloads),
        parameters_(parameters),
        blocks_(arguments.expected.blocks),
        payload_units_(static_cast<uint32_t>(payload_bytes / format::alignment)) {}

  struct Place {
    uint32_t begin;  // in units of format::alignment
    uint32_t bytes;  // 0: not valid
  };

  // Finds the payload of `block`, which decodes to `raw_bytes`. Called by a single lane.
  __device__ Place find(uint32_t block, uint32_t raw_bytes) const {
    const Place place = payloads_.lengths != nullptr ? in_slot(block)
                        : Codec::is_fixed            ? in_fixed_frame(block, raw_bytes)
                                                     : in_frame(block);
    const uint32_t stored = static_cast<uint32_t>(format::aligned(raw_bytes));
    const bool whole = raw_bytes == block_bytes;
    bool fits = place.bytes <= stored && place.bytes % format::alignment == 0 && (whole || place.bytes == stored);
    if constexpr (Codec::is_fixed) fits = fits && (!whole || place.bytes == Codec::payload_bytes(parameters_));
    return fits ? place : Place{0, 0};
  }

 private:
  static constexpr uint32_t block_bytes = Codec::values_bytes;
  static constexpr uint32_t unit = format::alignment;

  __device__ Place in_slot(uint32_t block) const { return {block * (block_bytes / unit), payloads_.lengths[block]}; }
  __device__ Place in_frame(uint32_t block) const {
    const uint32_t begin = block == 0 ? 0 : payloads_.ends[block - 1];
    const uint32_t end = payloads_.ends[block];
    const bool ordered = end > begin && end <= payload_units_ && (block + 1 < blocks_ || end == payload_units_);
    const uint32_t units = min(end - begin, 2 * block_bytes / unit);
    return {begin, ordered ? units * unit : 0};
  }
  __device__ Place in_fixed_frame(uint32_t block, uint32_t raw_bytes) const {
    if constexpr (Codec::is_fixed) {
      const uint32_t bytes = Codec::payload_bytes(parameters_);
      return {block * (bytes / unit),
              raw_bytes == block_bytes ? bytes : static_cast<uint32_t>(format::aligned(raw_bytes))};
    }
    return {0, 0};
  }

  const Payloads& payloads_;
  const device::Parameters<Codec>& parameters_;
  uint32_t blocks_, payload_units_;
};

// Calls sink.consume(block, values in shared memory, lane) for every whole block, and
// sink.consume_short(block, bytes, values in global memory, lane) for a short last block.
template <BlockCodec Codec, typename Sink>
__device__ void decode_blocks(const DecodeArguments& arguments, const Sink& sink) {
  constexpr uint32_t block_bytes = Codec::values_bytes;
  extern __shared__ char shared_memory[];
  const int lane = device::lane_id();
  const uint32_t warp = device::warp_id();
  using Memory = WarpMemory<Codec, 2>;
  Memory& memory = reinterpret_cast<Memory*>(shared_memory)[warp];
  device::LoadBarrier barrier(&memory.barrier, lane);

  uint64_t payload_bytes = 0;
  if (arguments.header != nullptr) {
    const uint64_t payload_offset = arguments.payloads.data - reinterpret_cast<const char*>(arguments.header);
    if (!header_matches(*arguments.header, arguments.expected, arguments.payloads.data_bytes + payload_offset) ||
        arguments.header->wire_bytes < payload_offset ||
        (Codec::is_fixed && arguments.header->wire_bytes != arguments.expected.wire_bytes)) {
      report_corrupt(arguments.status);
      return;
    }
    payload_bytes = arguments.header->wire_bytes - payload_offset;
  }

  const auto parameters = device::parameters_of<Codec>(arguments.codec);
  const PayloadFinder<Codec> finder(arguments, parameters, payload_bytes);
  const uint32_t warps = gridDim.x * (blockDim.x / 32);
  const uint32_t whole_blocks = static_cast<uint32_t>(arguments.expected.elems / block_elems<Codec>);
  uint32_t block = blockIdx.x * (blockDim.x / 32) + warp;

  char *here = memory.buffers[0], *other = memory.buffers[1];  // the buffers of the payload and of the values
  typename PayloadFinder<Codec>::Place places{0, 0};           // this lane's place among those of the warp's next 32
                                                               // blocks
  uint32_t turn = 0;
  const auto start_load = [&](uint32_t next) -> uint32_t {
    if (turn % 32 == 0) {
      const uint32_t of_lane = next + lane * warps;
      places = of_lane < whole_blocks ? finder.find(of_lane, block_bytes) : typename PayloadFinder<Codec>::Place{0, 0};
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
    device::wait_for_store_sources(lane);  // of the previous block
    char* values = other;
    bool decoded = bytes != 0;
    if (bytes == block_bytes) {  // raw: stored from the payload's buffer; the next block uses the other one
      values = here;
      here = other;
      other = values;
      device::order_stores_before_bulk_copies();
    } else if (decoded) {
      decoded = device::decode_block<Codec>(parameters, here, bytes, other, memory.scratch, lane);
    }
    bytes = start_load(block + warps);
    if (decoded) {
      sink.consume(block, values, lane);
    } else if (lane == 0) {
      report_corrupt(arguments.status);
    }
  }
  device::wait_for_store_sources(lane);

  const uint32_t last_bytes = static_cast<uint32_t>(arguments.expected.elems % block_elems<Codec>) * value_bytes<Codec>;
  if (block == whole_blocks && last_bytes != 0) {
    const typename PayloadFinder<Codec>::Place last = finder.find(block, last_bytes);
    if (last.bytes != 0) {
      sink.consume_short(block, last_bytes, arguments.payloads.data + uint64_t{last.begin} * format::alignment, lane);
    } else if (lane == 0) {
      report_corrupt(arguments.status);
    }
  }
}

}  // namespace narrowcast::codec::cuda
