// values -> slots. The warps take blocks in turn and are independent of each other.
#pragma once

#include "codec/frame/cuda/launch.h"
#include "codec/frame/cuda/warps.cuh"

namespace narrowcast::codec::cuda {

template <typename Codec>
__global__ void __launch_bounds__(max_warps<Codec> * 32, 1)
    encode_slots_kernel(const __grid_constant__ EncodeSlotsArguments arguments) {
  using Memory = WarpMemory<Codec, 2>;
  constexpr uint32_t block_bytes = Codec::values_bytes;
  const char* const values = arguments.values;
  const uint64_t elems = arguments.elems;
  // A frame of fixed payloads consists of slots without gaps.
  const uint32_t stride = Codec::is_fixed ? arguments.stride : block_bytes;
  extern __shared__ char shared_memory[];
  const int lane = device::lane_id();
  const uint32_t warp = device::warp_id();
  Memory& memory = reinterpret_cast<Memory*>(shared_memory)[warp];
  BlockLoader<Codec> loader(values, &memory.barrier, lane);

  const uint32_t warps = gridDim.x * (blockDim.x / 32);
  const uint32_t whole_blocks = static_cast<uint32_t>(elems / block_elems<Codec>);
  uint32_t block = blockIdx.x * (blockDim.x / 32) + warp;
  char *here = memory.buffers[0], *other = memory.buffers[1];  // the buffers of the values and of the payload

  // Prefetching helps if only some SMs are used. If all are, it only competes for memory bandwidth, which is the limit.
  const uint32_t prefetch_end = arguments.prefetch ? whole_blocks : 0;
  if (block < whole_blocks) loader.start(here, block, block + warps, prefetch_end);
  const auto parameters = device::parameters_of<Codec>(arguments.codec);
  for (; block < whole_blocks; block += warps) {
    loader.wait();
    device::wait_for_store_sources(lane);  // of the previous block
    const uint32_t bytes = device::encode_block<Codec>(parameters, device::context_in_frame<Codec>(block), here, other,
                                                       memory.scratch, lane);
    char* payload = other;
    if (bytes == block_bytes) {  // raw: stored from the values' buffer; the next block uses the other one
      payload = here;
      here = other;
      other = payload;
      device::order_stores_before_bulk_copies();
    }
    if (block + warps < whole_blocks) loader.start(here, block + warps, block + 2 * warps, prefetch_end);
    device::bulk_store(arguments.slots + uint64_t{block} * stride, payload, bytes, lane);
    if (lane == 0 && arguments.lengths != nullptr) arguments.lengths[block] = bytes;
  }
  device::wait_for_store_sources(lane);

  if (block == whole_blocks && elems % block_elems<Codec> != 0) {
    const uint32_t stored = store_short_block<Codec>(arguments.slots + uint64_t{block} * stride, values, elems, lane);
    if (lane == 0 && arguments.lengths != nullptr) arguments.lengths[block] = stored;
  }
}

}  // namespace narrowcast::codec::cuda
