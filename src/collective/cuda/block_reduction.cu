// Reductions by blocks: some of a CTA's warps send pieces to the ranks that reduce them, some reduce this rank's own and
// pass the result on, some receive the results of the others.
#include "collective/cuda/block_launch.cuh"

namespace narrowcast::collective::cuda {
namespace {

template <typename Coding, ncast_dtype Dtype>
inline constexpr ReduceWarps warps_of = reduce_warps(Coding::block_bytes, sizeof(typename Number<Dtype>::Value));

template <typename Coding, ncast_dtype Dtype>
struct ReduceMemory {
  static constexpr ReduceWarps warps = warps_of<Coding, Dtype>;
  RoleMemory<Coding, 4> reducers[warps.reducers];
  RoleMemory<Coding, 2> senders[warps.senders];
  RoleMemory<Coding, 3> receivers[warps.receivers];
  Signals<warps.reducers + warps.senders> signals;
};

template <typename Coding, ncast_dtype Dtype>
__global__ void __launch_bounds__(warps_of<Coding, Dtype>.all() * 32, 1)
    reduce_pieces(const __grid_constant__ BlockCall call) {
  constexpr ReduceWarps warps = warps_of<Coding, Dtype>;
  constexpr uint32_t senders = warps.reducers + warps.senders;
  extern __shared__ char shared_memory[];
  auto& memory = *reinterpret_cast<ReduceMemory<Coding, Dtype>*>(shared_memory);
  const uint32_t warp = device::warp_id();
  const auto number_from = [&](uint32_t first) { return (warp - first) * gridDim.x + blockIdx.x; };
  const int lane = device::lane_id();
  memory.signals.open_all();
  if (warp < warps.reducers) {
    reduce_blocks<Coding, Dtype>(call, memory.reducers[warp], memory.signals.queues[warp], number_from(0), lane);
    memory.signals.close_one(lane);
  } else if (warp < senders) {
    send_blocks<Coding>(call, memory.senders[warp - warps.reducers], memory.signals.queues[warp],
                        number_from(warps.reducers), warps.senders * gridDim.x, true, lane);
    memory.signals.close_one(lane);
  } else if (warp < senders + warps.receivers) {
    receive_blocks<Coding>(call, memory.receivers[warp - senders], number_from(senders), warps.receivers * gridDim.x,
                           call.first_forward_lane, lane);
  } else {
    channel::raise_flags(memory.signals.queues, senders, &memory.signals.open, lane);
  }
}

}  // namespace

cudaError_t launch_reduction(const BlockCall& call, ncast_dtype dtype, ncast_codec codec, uint32_t ctas,
                             cudaStream_t stream) {
  return with_coding(dtype, codec, [&]<typename Coding, ncast_dtype Dtype>() {
    return launch_roles<ReduceMemory<Coding, Dtype>>(reduce_pieces<Coding, Dtype>, ctas, warps_of<Coding, Dtype>.all(),
                                                     call, stream);
  });
}

}  // namespace narrowcast::collective::cuda
