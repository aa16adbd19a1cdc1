// Blocks that only move: some of a CTA's warps send, or pass on what they receive, as many receive, a few copy what stays on the
// rank, and one raises flags.
#include "executor/cuda/blocks/kernels.h"
#include "executor/cuda/blocks/launch.cuh"
#include "executor/cuda/blocks/roles.cuh"

namespace narrowcast::executor::cuda {
namespace {

template <typename Coding>
struct MoveMemory {
  static constexpr MoveWarps warps = move_warps(Coding::block_bytes);
  WarpMemory<Coding> senders[warps.senders];
  WarpMemory<Coding> receivers[warps.receivers];
  Signals<warps.senders> signals;
};

inline constexpr uint32_t own_copy_warps = 16;

// All warps of a CTA. relays: those that would send pass a piece on. In one kernel with the others that costs these registers, and
// every move time: what is spilled is fetched from the L2 cache.
template <typename Coding, bool relays>
__device__ void move_pieces(const BlockCall& call) {
  constexpr MoveWarps warps = move_warps(Coding::block_bytes);
  extern __shared__ char shared_memory[];
  auto& memory = *reinterpret_cast<MoveMemory<Coding>*>(shared_memory);
  const uint32_t warp = device::warp_id();
  const auto number_from = [&](uint32_t first) { return (warp - first) * gridDim.x + blockIdx.x; };
  const int lane = device::lane_id();
  memory.signals.open_all(warps.senders);
  device::wait_for_stream();
  if (warp < warps.senders) {
    const uint32_t all = warps.senders * gridDim.x;
    if constexpr (relays) {
      relay_blocks<Coding>(call, memory.senders[warp], memory.signals.queues[warp], number_from(0), all, lane);
    } else {
      send_blocks<Coding>(call, memory.senders[warp], memory.signals.queues[warp], number_from(0), all, lane);
    }
    end_claims(call, all, lane);
    memory.signals.close_one(lane);
  } else if (warp < warps.senders + warps.receivers) {
    receive_blocks<Coding>(call, memory.receivers[warp - warps.senders], number_from(warps.senders),
                           warps.receivers * gridDim.x, lane);
  } else if (warp < warps.all() - 1) {
    copy_own_blocks(call.own_copy, number_from(warps.senders + warps.receivers), warps.copiers * gridDim.x, lane);
  } else {
    if (blockIdx.x == 0) {
      count_raw_bytes(call, lane);
      if (!Coding::codes) invite_senders(call, lane);
    }
    channel::raise_flags(memory.signals.queues, warps.senders, &memory.signals.open, lane);
  }
}

template <typename Coding>
__global__ void __maxnreg__(most_move_registers(Coding::block_bytes))
    move_blocks(const __grid_constant__ BlockCall call) {
  move_pieces<Coding, false>(call);
}
template <typename Coding>
__global__ void __maxnreg__(most_move_registers(Coding::block_bytes))
    relay_pieces(const __grid_constant__ BlockCall call) {
  move_pieces<Coding, true>(call);
}

__global__ void __launch_bounds__(own_copy_warps * 32, 1) copy_own(const __grid_constant__ OwnCopy own) {
  copy_own_blocks(own, device::warp_id() * gridDim.x + blockIdx.x, own_copy_warps * gridDim.x, device::lane_id());
}

}  // namespace

cudaError_t load_block_moves() {
  if (const cudaError_t error = load_kernel(copy_own)) return error;
  return for_each_coding([&]<typename Coding, ncast_dtype>() {
    const cudaError_t error = load_block_kernel(move_blocks<Coding>);
    return error != cudaSuccess ? error : load_block_kernel(relay_pieces<Coding>);
  });
}

cudaError_t launch_own_copy(const OwnCopy& own, uint32_t ctas, cudaStream_t stream) {
  // The driver copies well at any alignment, but with CTAs on all SMs, which keep the call's waiting if they come first.
  if (ctas == 0 || !is_aligned(own))
    return cudaMemcpyAsync(own.to, own.from, own.bytes, cudaMemcpyDeviceToDevice, stream);
  copy_own<<<ctas, own_copy_warps * 32, 0, stream>>>(own);
  return cudaGetLastError();
}

cudaError_t launch_moves(const BlockCall& call, ncast_dtype dtype, ncast_codec codec, uint32_t ctas,
                         cudaStream_t stream) {
  return with_coding(dtype, codec, [&]<typename Coding, ncast_dtype>() {
    static_assert(sizeof(MoveMemory<Coding>) <= most_shared_bytes);
    return launch_block_kernel(call.relayed != 0 ? relay_pieces<Coding> : move_blocks<Coding>, ctas,
                               move_warps(Coding::block_bytes).all(), sizeof(MoveMemory<Coding>), call, stream);
  });
}

}  // namespace narrowcast::executor::cuda
