// Kernels that move blocks without reducing them. Of a CTA's warps, some send (or relay what they receive), about as
// many receive, a few copy the local part, and one raises flags. In CTA 0 one of the copying warps checks the call
// instead.
#pragma once

#include "device/ptx/stream_order.cuh"
#include "executor/cuda/blocks/roles.cuh"

namespace narrowcast::executor::cuda {

// All warps of a CTA call this. relays: the sending warps relay a piece instead. Relaying has a kernel of its own
// because both roles in one kernel need more registers, and registers that spill are reloaded from the L2 cache, which
// slows down every move.
template <typename Codec, bool relays>
__device__ void move_pieces(const BlockCall& call) {
  static_assert(sizeof(MovingMemory<Codec>) <= warp_memory_bytes(Codec::values_bytes, 0));
  static_assert(MoveWarps::copiers > 1, "one copying warp checks the call");
  const MoveWarps warps = MoveWarps::of(blockDim.x / 32, !Codec::is_exact && call.sent_together != 0);
  extern __shared__ char shared_memory[];
  auto& memory = *reinterpret_cast<CtaMemory<MovingMemory<Codec>>*>(shared_memory);
  const uint32_t warp = device::warp_id();
  const auto number_from = [&](uint32_t first) { return (warp - first) * gridDim.x + blockIdx.x; };
  const int lane = device::lane_id();
  memory.open_all(warps.senders);
  if (warp < warps.with_buffers()) memory.warp(warp).use(call.codec, call.codec, lane);
  device::wait_for_stream();
  if (warp < warps.senders) {
    const uint32_t all = warps.senders * gridDim.x;
    if constexpr (relays) {
      relay_blocks<Codec>(call, memory.warp(warp), memory.queues[warp], number_from(0), all, lane);
    } else {
      send_blocks<Codec>(call, memory.warp(warp), memory.queues[warp], number_from(0), all, lane);
    }
    end_sender<Codec>(call, all, lane);
    memory.close_one(lane);
  } else if (warp < warps.with_buffers()) {
    receive_blocks<Codec>(call, memory.warp(warp), number_from(warps.senders), warps.receivers * gridDim.x, lane);
  } else if (warp < warps.all() - 1) {
    const uint32_t number = number_from(warps.with_buffers());
    if (number == 0) {
      const uint32_t* const open = &memory.open;
      announce(call, lane).finish(call.peers, [&] { return device::load_acquire_cta(open) != 0; });
    } else {
      copy_local_blocks(call.local_copy, number - 1, MoveWarps::copiers * gridDim.x - 1, lane);
    }
  } else {
    if (blockIdx.x == 0) {
      const uint32_t stopped = channel::stop_word(call.peers);
      if (Codec::is_identity) invite_peers(call, stopped, lane);
      if (stopped == 0) count_raw_bytes(call, lane);
    }
    uint32_t raised = 0;
    channel::raise_flags(memory.queues, warps.senders, &memory.open, lane, raised, [] { return false; });
  }
}

template <typename Codec>
__global__ void __maxnreg__(most_move_registers(Codec::values_bytes))
    move_blocks(const __grid_constant__ BlockCall call) {
  move_pieces<Codec, false>(call);
}
template <typename Codec>
__global__ void __maxnreg__(most_move_registers(Codec::values_bytes))
    relay_pieces(const __grid_constant__ BlockCall call) {
  move_pieces<Codec, true>(call);
}

}  // namespace narrowcast::executor::cuda
