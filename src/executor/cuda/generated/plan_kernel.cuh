// The frame of a generated kernel that works by blocks: assigns its warps to the groups of the plan, raises their flags
// and announces the call.
#pragma once

#include "channel/peer/call_check.cuh"
#include "device/ptx/stream_order.cuh"
#include "executor/cuda/generated/plan_warp.cuh"

namespace narrowcast::executor::cuda::generated {

// Announces the call and this rank's buffers to the peers.
template <typename Settings>
__device__ __forceinline__ channel::CallCheck announce(const PlanCall& call, int thread) {
  const channel::CallCheck check{call.peers, call.announced, false, thread};
  if (channel::stop_word(call.peers) != 0) return check;
  if (thread == 0 && call.raw_bytes != 0) atomicAdd(&call.byte_counters->raw_bytes, call.raw_bytes);
  if (Settings::announces_buffers && thread < 2 * call.peers.ranks) {
    const int rank = thread / 2;
    const uint32_t buffer = static_cast<uint32_t>(thread) % 2;
    const uint32_t number = reinterpret_cast<const uint32_t*>(call.own + call.layout.calls())[0] + 1;
    device::store_relaxed(
        reinterpret_cast<uint64_t*>(call.shared[rank] + call.layout.buffer_word(number, call.peers.rank, buffer)),
        BufferWord::of(number, call.own_regions[buffer], call.own_offsets[buffer]).word);
  }
  return check;
}

// What the signal warp does. That of CTA 0 also announces the call, and compares it with the calls of the peers.
template <typename Settings>
__device__ __noinline__ void raise_all_flags(const PlanCall& call, CtaMemory<PlanMemory<Settings>>& memory,
                                             int thread) {
  constexpr uint32_t idle_between_polls = 16;
  channel::CallCheck check;
  const bool announces = blockIdx.x == 0;
  if (announces) check = announce<Settings>(call, thread);
  uint32_t raised = 0, idle = 0;
  channel::raise_flags(memory.queues, Settings::workers, &memory.open, thread, raised, [&] {
    if (announces && ++idle % idle_between_polls == 0) check.poll(call.peers);
    return false;
  });
  if (announces) check.finish(call.peers, [] { return false; });
}

// All threads of the CTA call this. run(warp, group): runs the program of a group of this rank. groups: of this rank.
// ends(group): the table of the group's ends.
template <typename Settings, typename Ends, typename Run>
__device__ __forceinline__ void run_plan(const PlanCall& call, uint32_t groups, Ends ends, Run run) {
  extern __shared__ char shared_memory[];
  auto& memory = *reinterpret_cast<CtaMemory<PlanMemory<Settings>>*>(shared_memory);
  const int thread = device::lane_id();
  const uint32_t warp = device::warp_id();
  memory.open_all(Settings::workers);
  device::wait_for_stream();
  if (warp == Settings::workers) {
    raise_all_flags<Settings>(call, memory, thread);
  } else {
    // Consecutive warps are on different SMs.
    const uint32_t number = warp * gridDim.x + blockIdx.x, group = number / call.warps, index = number % call.warps;
    if (group < groups && index < call.blocks) {
      const uint32_t stopped = channel::stop_word(call.peers);
      PlanWarp<Settings> of_plan(call, memory.warp(warp), memory.queues[warp], ends(group), index, thread);
      if (!channel::is_stopped(stopped) && run(of_plan, group)) of_plan.end();
    }
    memory.close_one(thread);
  }
  if constexpr (Settings::counts_calls) {
    // The CTAs of this call also advance the numbers of CTAs that it does not have.
    __syncthreads();
    auto* const calls = reinterpret_cast<uint32_t*>(call.own + call.layout.calls());
    const uint32_t number = calls[blockIdx.x] + 1;
    __syncthreads();
    for (uint32_t cta = blockIdx.x + threadIdx.x * gridDim.x; cta < channel::cta_states; cta += blockDim.x * gridDim.x)
      calls[cta] = number;
  }
}

}  // namespace narrowcast::executor::cuda::generated
