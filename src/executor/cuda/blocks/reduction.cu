// Reductions by blocks: every warp but one sends, reduces and receives; that one raises the flags.
#include "executor/cuda/blocks/kernels.h"
#include "executor/cuda/blocks/launch.cuh"
#include "executor/cuda/blocks/reducing_warp.cuh"

namespace narrowcast::executor::cuda {
namespace {

template <typename Coding, ncast_dtype Dtype>
inline constexpr uint32_t warps_of = reduce_warps(Coding::block_bytes, sizeof(typename Number<Dtype>::Value));

template <typename Coding, ncast_dtype Dtype>
struct ReduceMemory {
  static constexpr uint32_t rings = reduce_rings(warps_of<Coding, Dtype>);
  WarpMemory<Coding> warps[rings];
  ReducingState states[rings];
  Signals<rings> signals;
};

template <typename Coding, ncast_dtype Dtype>
__global__ void __launch_bounds__(warps_of<Coding, Dtype> * 32, 1)
    reduce_pieces(const __grid_constant__ BlockCall call) {
  using Memory = ReduceMemory<Coding, Dtype>;
  constexpr uint32_t signal_warp = signal_warp_of(warps_of<Coding, Dtype>);
  extern __shared__ char shared_memory[];
  auto& memory = *reinterpret_cast<Memory*>(shared_memory);
  const int thread = device::lane_id();
  uint32_t warp = device::warp_id();
  memory.signals.open_all(Memory::rings);
  device::wait_for_stream();
  if (warp == signal_warp) {
    if (blockIdx.x == 0) count_raw_bytes(call, thread);
    return channel::raise_flags(memory.signals.queues, Memory::rings, &memory.signals.open, thread);
  }
  if (warp > signal_warp) --warp;

  const uint32_t ring = warp * gridDim.x + blockIdx.x;
  if (ring < call.turns.rings)
    ReducingWarp<Coding, Dtype>(call, memory.warps[warp], memory.states[warp], memory.signals.queues[warp], ring,
                                thread)
        .run();
  memory.signals.close_one(thread);
}

}  // namespace

cudaError_t load_block_reductions() {
  return for_each_coding(
      [&]<typename Coding, ncast_dtype Dtype>() { return load_block_kernel(reduce_pieces<Coding, Dtype>); });
}

cudaError_t launch_reduction(const BlockCall& call, ncast_dtype dtype, ncast_codec codec, uint32_t ctas,
                             cudaStream_t stream) {
  return with_coding(dtype, codec, [&]<typename Coding, ncast_dtype Dtype>() {
    static_assert(sizeof(ReduceMemory<Coding, Dtype>) <= most_shared_bytes);
    return launch_block_kernel(reduce_pieces<Coding, Dtype>, ctas, warps_of<Coding, Dtype>,
                               sizeof(ReduceMemory<Coding, Dtype>), call, stream);
  });
}

}  // namespace narrowcast::executor::cuda
