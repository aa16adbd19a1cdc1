// Kernels that reduce blocks. One warp of each CTA raises flags; every other warp sends, reduces and receives.
#pragma once

#include "device/ptx/stream_order.cuh"
#include "executor/cuda/blocks/reducing_warp.cuh"

namespace narrowcast::executor::cuda {

// The signal warp of CTA 0 also announces the call and compares it with the peers' announcements. Not inlined, because
// that slowed down the other warps and made ptxas spill more of their values.
__device__ __noinline__ inline void check_and_raise_flags(const BlockCall& call, SignalQueue* queues, uint32_t rings,
                                                          const uint32_t* open, int thread) {
  constexpr uint32_t idle_between_polls = 16;
  uint32_t raised = 0, idle = 0;
  const auto raise_flags = [&](auto ends) { channel::raise_flags(queues, rings, open, thread, raised, ends); };
  channel::CallCheck check = announce(call, thread);
  if (channel::stop_word(call.peers) == 0) count_raw_bytes(call, thread);
  raise_flags([&] { return ++idle % idle_between_polls == 0 && !check.poll(call.peers); });
  raise_flags([] { return false; });
  check.finish(call.peers, [] { return false; });
}

// All warps of a CTA call this. Op: see ReducingWarp.
template <typename Codec, ncast_redop Op = any_reduction>
__device__ __forceinline__ void reduce_pieces_by_cta(const BlockCall& call) {
  using Memory = WarpMemory<Codec, ReducingState>;
  static_assert(sizeof(Memory) <= warp_memory_bytes(Codec::values_bytes, reducing_state_bytes));
  const uint32_t warps = blockDim.x / 32, rings = reduce_rings(warps), signal_warp = signal_warp_of(warps);
  extern __shared__ char shared_memory[];
  auto& memory = *reinterpret_cast<CtaMemory<Memory>*>(shared_memory);
  const int thread = device::lane_id();
  const uint32_t index = device::warp_id(), warp = index - (index > signal_warp);
  memory.open_all(rings);
  if (index != signal_warp) memory.warp(warp).use(call.codec, call.result_codec, thread);
  device::wait_for_stream();
  if (index == signal_warp) {
    if (blockIdx.x == 0) return check_and_raise_flags(call, memory.queues, rings, &memory.open, thread);
    uint32_t raised = 0;
    return channel::raise_flags(memory.queues, rings, &memory.open, thread, raised, [] { return false; });
  }

  const uint32_t ring = warp * gridDim.x + blockIdx.x;
  if (ring < call.turns.rings) {
    const uint32_t stopped =
        channel::stop_word(call.peers);  // loaded concurrently with the counters of the ring's ends
    ReducingWarp<Codec, Op> reducing(call, memory.warp(warp), memory.queues[warp], ring, thread);
    if (!channel::is_stopped(stopped)) reducing.run();
  }
  end_warp<Codec>(call, rings * gridDim.x, false, thread);
  memory.close_one(thread);
}

// The most warps of a CTA.
template <typename Codec>
constexpr uint32_t most_reduce_warps() {
  return reduce_warps(most_shared_bytes, Codec::values_bytes, device::value_bytes<Codec>);
}

template <typename Codec, ncast_redop Op = any_reduction>
__global__ void __launch_bounds__(most_reduce_warps<Codec>() * 32, 1)
    reduce_pieces(const __grid_constant__ BlockCall call) {
  reduce_pieces_by_cta<Codec, Op>(call);
}

}  // namespace narrowcast::executor::cuda
