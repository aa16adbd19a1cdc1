// values -> slots: each warp takes every so manieth block; nothing is shared between warps.
#include "codec/cuda/launch.h"
#include "codec/cuda/warps.cuh"

namespace narrowcast::codec::cuda {
namespace {

template <ncast_dtype Dtype>
__global__ void __launch_bounds__(warps_per_cta<format::window::value_type(Dtype)> * 32, 1)
    encode_slots_kernel(const char* values, uint64_t elems, char* slots, uint32_t* lengths) {
  constexpr format::window::ValueType Type = format::window::value_type(Dtype);
  using Block = window::Block<Type>;
  constexpr uint32_t block_bytes = Block::values_bytes;
  extern __shared__ char shared_memory[];
  const int lane = device::lane_id();
  WarpMemory<Type>& memory = reinterpret_cast<WarpMemory<Type>*>(shared_memory)[threadIdx.x / 32];
  device::LoadBarrier barrier(&memory.barrier, lane);

  const uint64_t warps = uint64_t{gridDim.x} * warps_per_cta<Type>;
  const uint64_t whole_blocks = elems / Type.block_elems();
  const bool aligned = is_aligned(values);
  // Neighbouring warps of different SMs take neighbouring blocks, so that a short tail is spread over the SMs.
  uint64_t block = uint64_t{threadIdx.x / 32} * gridDim.x + blockIdx.x;

  const auto start_load = [&](uint64_t next) {
    if (next >= whole_blocks) return;
    if (aligned) {
      barrier.load(memory.values, values + next * block_bytes, block_bytes, lane);
    } else {
      __syncwarp();
      copy_block<Type>(memory.values, values + next * block_bytes, lane);
    }
  };

  start_load(block);
  for (; block < whole_blocks; block += warps) {
    if (aligned) {
      barrier.wait();
    } else {
      __syncwarp();
    }
    device::wait_for_store_sources(lane);  // of the last block's payload
    const uint32_t bytes = Block::encode(memory.values, memory.payload, memory.scratch, lane);
    const bool raw = bytes == block_bytes;
    if (!raw) start_load(block + warps);
    device::bulk_store(slots + block * block_bytes, raw ? memory.values : memory.payload, bytes, lane);
    if (lane == 0) lengths[block] = bytes;
    if (raw) {
      device::wait_for_store_sources(lane);
      start_load(block + warps);
    }
  }
  device::wait_for_stores(lane);

  const uint32_t last_bytes = static_cast<uint32_t>(elems % Type.block_elems()) * Type.value_bytes;
  if (block == whole_blocks && last_bytes != 0) {  // the short block is stored raw
    const uint32_t stored = static_cast<uint32_t>(format::aligned(last_bytes));
    copy_bytes(slots + block * block_bytes, values + block * block_bytes, last_bytes, lane);
    if (last_bytes + lane < stored) slots[block * block_bytes + last_bytes + lane] = 0;
    if (lane == 0) lengths[block] = stored;
  }
}

}  // namespace

cudaError_t encode_slots(const Values& values, char* slots, uint32_t* lengths, const Launch& launch) {
  return dispatch(values.dtype, [&]<ncast_dtype Dtype>() {
    constexpr format::window::ValueType Type = format::window::value_type(Dtype);
    uint32_t ctas;
    const uint64_t blocks = format::frame_layout(values.elems, Type.block_elems()).blocks;
    const cudaError_t error = grid_size(blocks, warps_per_cta<Type>, launch.max_ctas, &ctas);
    if (error != cudaSuccess) return error;
    return launch_warps<Type>(encode_slots_kernel<Dtype>, ctas, 0, launch.stream,
                              static_cast<const char*>(values.data), values.elems, slots, lengths);
  });
}

}  // namespace narrowcast::codec::cuda
