// Reductions by blocks: some of a CTA's warps send pieces to the ranks that reduce them, some reduce this rank's own and
// pass the result on, some receive the results of the others.
#include "collective/cuda/block_launch.cuh"
#include "collective/cuda/reduce_role.cuh"

namespace narrowcast::collective::cuda {
namespace {

template <typename Coding, ncast_dtype Dtype>
inline constexpr uint32_t warps_of = all_reduce_warps(Coding::block_bytes, sizeof(typename Number<Dtype>::Value));

// A CTA's shared memory: the signals, then the memory of each role's warps.
using ReduceSignals = Signals<8>;
template <typename Coding>
using Reducer = RoleMemory<Coding, 3>;
template <typename Coding>
using Sender = RoleMemory<Coding, 3>;
template <typename Coding>
using Receiver = RoleMemory<Coding, 3>;
template <typename Coding>
size_t shared_bytes(ReduceWarps warps) {
  return sizeof(ReduceSignals) + warps.reducers * sizeof(Reducer<Coding>) + warps.senders * sizeof(Sender<Coding>) +
         warps.receivers * sizeof(Receiver<Coding>);
}

template <typename Coding, ncast_dtype Dtype>
__global__ void __launch_bounds__(warps_of<Coding, Dtype> * 32, ctas_of_an_sm)
    reduce_pieces(const __grid_constant__ BlockCall call) {
  constexpr uint32_t signal_warp = signal_warp_of(warps_of<Coding, Dtype>);
  extern __shared__ char shared_memory[];
  auto& signals = *reinterpret_cast<ReduceSignals*>(shared_memory);
  const ReduceWarps warps = call.warps;
  const uint32_t sending = warps.reducers + warps.senders;
  const int lane = device::lane_id();
  uint32_t warp = device::warp_id();
  signals.open_all(sending);
  if (warp == signal_warp) return channel::raise_flags(signals.queues, sending, &signals.open, lane);
  if (warp > signal_warp) --warp;

  const auto number_from = [&](uint32_t first) { return (warp - first) * gridDim.x + blockIdx.x; };
  auto* reducers = reinterpret_cast<Reducer<Coding>*>(shared_memory + sizeof signals);
  auto* senders = reinterpret_cast<Sender<Coding>*>(reducers + warps.reducers);
  auto* receivers = reinterpret_cast<Receiver<Coding>*>(senders + warps.senders);
  if (warp < warps.reducers) {
    reduce_blocks<Coding, Dtype>(call, reducers[warp], signals.queues[warp], number_from(0), lane);
    signals.close_one(lane);
  } else if (warp < sending) {
    send_blocks<Coding>(call, senders[warp - warps.reducers], signals.queues[warp], number_from(warps.reducers),
                        warps.senders * gridDim.x, lane);
    signals.close_one(lane);
  } else {
    receive_blocks<Coding>(call, receivers[warp - sending], number_from(sending), warps.receivers * gridDim.x, lane);
  }
}

}  // namespace

cudaError_t load_block_reductions() {
  return for_each_coding(
      [&]<typename Coding, ncast_dtype Dtype>() { return load_roles(reduce_pieces<Coding, Dtype>); });
}

cudaError_t launch_reduction(const BlockCall& call, ncast_dtype dtype, ncast_codec codec, uint32_t ctas,
                             cudaStream_t stream) {
  return with_coding(dtype, codec, [&]<typename Coding, ncast_dtype Dtype>() {
    return launch_roles(reduce_pieces<Coding, Dtype>, ctas, warps_of<Coding, Dtype>, shared_bytes<Coding>(call.warps),
                        call, stream);
  });
}

}  // namespace narrowcast::collective::cuda
