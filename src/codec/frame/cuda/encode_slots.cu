// values -> slots: each warp takes every so manieth block; nothing is shared between warps.
#include "codec/frame/cuda/launch.h"
#include "codec/frame/cuda/warps.cuh"

namespace narrowcast::codec::cuda {
namespace {

template <ncast_dtype Dtype>
__global__ void __launch_bounds__(most_warps<format::window::value_type(Dtype)> * 32, 1)
    encode_slots_kernel(const char* values, uint64_t elems, char* slots, uint32_t* lengths, bool prefetch) {
  constexpr format::window::ValueType Type = format::window::value_type(Dtype);
  using Block = window::Block<Type>;
  using Memory = WarpMemory<Type, 2>;
  constexpr uint32_t block_bytes = Block::values_bytes;
  extern __shared__ char shared_memory[];
  const int lane = device::lane_id();
  const uint32_t warp = device::warp_id();
  Memory& memory = reinterpret_cast<Memory*>(shared_memory)[warp];
  BlockLoader<Type> loader(values, &memory.barrier, lane);

  const uint32_t warps = gridDim.x * (blockDim.x / 32);
  const uint32_t whole_blocks = static_cast<uint32_t>(elems / Type.block_elems());
  uint32_t block = blockIdx.x * (blockDim.x / 32) + warp;
  char *here = memory.buffers[0], *other = memory.buffers[1];  // the block's values, and its payload

  // Asking ahead for blocks helps a few SMs; when all run, it only disturbs the memory that they wait for.
  const uint32_t prefetch_end = prefetch ? whole_blocks : 0;
  if (block < whole_blocks) loader.start(here, block, block + warps, prefetch_end);
  for (; block < whole_blocks; block += warps) {
    loader.wait();
    device::wait_for_store_sources(lane);  // of the last block
    const uint32_t bytes = Block::encode(here, other, memory.scratch, lane);
    char* payload = other;
    if (bytes == block_bytes) {  // raw: it leaves from where it is, and the next comes to the other buffer
      payload = here;
      here = other;
      other = payload;
      device::order_stores_before_bulk_copies();
    }
    if (block + warps < whole_blocks) loader.start(here, block + warps, block + 2 * warps, prefetch_end);
    device::bulk_store(slots + uint64_t{block} * block_bytes, payload, bytes, lane);
    if (lane == 0) lengths[block] = bytes;
  }
  device::wait_for_store_sources(lane);

  if (block == whole_blocks && elems % Type.block_elems() != 0) {
    const uint32_t stored = store_short_block<Type>(slots + uint64_t{block} * block_bytes, values, elems, lane);
    if (lane == 0) lengths[block] = stored;
  }
}

}  // namespace

cudaError_t encode_slots(const Values& values, char* slots, uint32_t* lengths, const Launch& launch) {
  return dispatch(values.dtype, [&]<ncast_dtype Dtype>() {
    constexpr format::window::ValueType Type = format::window::value_type(Dtype);
    return launch_warps<Type, encoders_on_all_sms<Type>>(
        encode_slots_kernel<Dtype>, format::frame_layout(values.elems, Type.block_elems()).blocks, launch,
        static_cast<const char*>(values.data), values.elems, slots, lengths, launch.max_ctas != 0);
  });
}

}  // namespace narrowcast::codec::cuda
