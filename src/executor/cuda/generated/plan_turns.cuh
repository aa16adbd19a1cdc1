// The turns of a warp of a generated kernel that works by blocks, and its order with other groups and ranks.
//
// The blocks of a call, its micro-batches, are divided among the warps of a group: warp i processes every warps-th
// block of every chunk, from block i, and has ring i of every ring channel. In turn t the warp executes the steps of
// stage s for its block number t - s. Steps of a later stage need data that other ranks send in an earlier one, which
// then has a turn to arrive, as in reducing_warp.cuh. Ranks agree on the order of the messages of a ring because all
// messages of a ring are received the same number of stages after they are sent.
#pragma once

#include "channel/memory/memory_channel.cuh"
#include "executor/cuda/blocks/warp_memory.cuh"
#include "executor/cuda/generated/plan_call.h"

namespace narrowcast::executor::cuda::generated {

// The whole warp calls every function. A function that returns false found the communicator stopped, or stopped it.
class PlanTurns {
 public:
  // --- turns and items ---

  // Begins with the warp's first block.
  __device__ void begin() { turn_block_ = index_; }
  // Whether there are turns left in a program of so many stages.
  __device__ bool has_turn(uint32_t stages) const {
    return turn_block_ < call_.blocks + (stages - 1) * call_.warps && index_ < call_.blocks;
  }
  __device__ void next_turn() { turn_block_ += call_.warps; }
  // Begins an item of the tables. Returns false if this turn has no block for it.
  __device__ bool begin_item(const uint32_t* item) {
    const ItemHead head{item[0]};
    item_ = item;
    block_ = turn_block_ - head.stage() * call_.warps;
    if (block_ >= call_.blocks) return false;  // a block before the first one has a huge number
    if (head.settles()) device::wait_for_stores(thread_);
    return true;
  }

  // --- order between groups and ranks ---

  // Announces that the warp has executed all items of this block up to here.
  __device__ void publish(uint32_t point) {
    device::wait_for_stores(thread_);
    if (thread_ == 0)
      device::store_release(own<uint64_t>(call_.layout.point(point, index_)),
                            uint64_t{call_number()} << 32 | (block_ + 1));
    __syncwarp();
  }
  // Waits until the warp of the same index of another group has announced the same block.
  __device__ bool await(uint32_t point) {
    const uint64_t expected = uint64_t{call_number()} << 32 | (block_ + 1);
    const uint64_t* const word = own<uint64_t>(call_.layout.point(point, index_));
    return wait([&] { return device::load_acquire(word) >= expected; }, call_.peers.rank);
  }

  // Adds one to a semaphore of `rank`. number: of its word there; own_number: of this rank's count of signals.
  template <bool relaxed>
  __device__ void signal(uint32_t rank, uint32_t number, uint32_t own_number) {
    if (!relaxed) device::wait_for_stores(thread_);
    __syncwarp();
    if (thread_ == 0) {
      uint32_t* const count = own<uint32_t>(call_.layout.sent_signal(own_number, index_));
      const uint32_t sent = *count + 1;
      *count = sent;
      auto* const word = reinterpret_cast<uint32_t*>(call_.shared[rank] + call_.layout.signal(number, index_));
      if (!relaxed) device::fence_system();
      device::store_relaxed(word, sent);
    }
    __syncwarp();
  }
  // Waits for a signal from `rank` and subtracts one. The semaphore is the sum of `words` words from `number` on;
  // initial: its first value. own_number: of the count of waits.
  __device__ bool wait_for_signal(uint32_t rank, uint32_t number, uint32_t words, uint32_t initial,
                                  uint32_t own_number) {
    uint32_t needed = 0;
    if (thread_ == 0)
      needed = atomicAdd(own<uint32_t>(call_.layout.waited_signal(own_number, index_)), 1u) + 1 - initial;
    const char* const first = call_.shared[call_.peers.rank] + call_.layout.signal(number, index_);
    const uint64_t stride = call_.layout.signal(1, 0);
    return wait(
        [&] {
          uint32_t sum = 0;
#pragma unroll 1
          for (uint32_t i = 0; i < words; ++i)
            sum += device::load_acquire(reinterpret_cast<const uint32_t*>(first + i * stride));
          return static_cast<int32_t>(sum - needed) >= 0;
        },
        static_cast<int>(rank));
  }

 protected:
  // index: of the warp in its group.
  __device__ PlanTurns(const PlanCall& call, uint32_t index, int thread)
      : call_(call), index_(index), thread_(thread) {}

  template <typename T>
  __device__ T* own(uint64_t offset) const {
    return reinterpret_cast<T*>(call_.own + offset);
  }
  // Number of this call, which CTAs advance when they end.
  __device__ uint32_t call_number() const { return own<const uint32_t>(call_.layout.calls())[blockIdx.x] + 1; }

  // One thread waits, for values that other warps or ranks have written; the warp may load them afterwards.
  template <typename Ready>
  __device__ bool wait(Ready ready, int peer) {
    bool arrived = true;
    if (thread_ == 0) {
      arrived = channel::wait_until(call_.peers, peer, ready);
      device::order_memory_before_bulk_copies();
    }
    arrived = __shfl_sync(device::all_lanes, arrived, 0);
    __syncwarp();
    return arrived;
  }

  const PlanCall& call_;
  const uint32_t* item_ = nullptr;
  uint32_t index_;
  int thread_;
  uint32_t turn_block_ = 0;  // the block of stage 0 in this turn
  uint32_t block_ = 0;       // the block of this item
};

}  // namespace narrowcast::executor::cuda::generated
