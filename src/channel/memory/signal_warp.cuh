// The warp of a CTA that raises the flags of all the others, so that they go on while it waits.
#pragma once

#include "channel/memory/memory_channel.h"
#include "device/ptx/system_memory.cuh"
#include "device/warp.cuh"

namespace narrowcast::channel {

// Flags that one warp wants raised, in shared memory, zero at first.
struct SignalQueue {
  static constexpr uint32_t capacity = max_gpu_ranks;

  // A thread of the sending warp: the `number`th flag, counted from 0. Waits for room.
  __device__ void push(uint32_t number, uint64_t* flag, SlotFlag word) {
    while (number - device::load_acquire_cta(&raised) >= capacity) {
    }
    flags[number % capacity] = flag;
    words[number % capacity] = word.word;
  }
  // One thread of it, after a barrier: so many flags have been pushed.
  __device__ void publish(uint32_t number) { device::store_release_cta(&pushed, number); }

  // The signal warp raises the `number`th flag of those `pending`, and with it the next where both lie in 16 bytes:
  // links and caches take one store more easily than two. Returns how many that were.
  __device__ uint32_t raise(uint32_t number, uint32_t pending) const {
    uint64_t* const flag = flags[number % capacity];
    const uint64_t word = words[number % capacity];
    if (pending < 2 || reinterpret_cast<uintptr_t>(flag) % 16 != 0 || flags[(number + 1) % capacity] != flag + 1) {
      device::store_relaxed(flag, word);
      return 1;
    }
    device::store_relaxed(flag, word, words[(number + 1) % capacity]);
    return 2;
  }

  uint64_t* flags[capacity];
  uint64_t words[capacity];
  uint32_t pushed;
  uint32_t raised;
};

// The signal warp, which serves at most 32 queues until `open`, the count of warps that still may push, is 0, or until
// ends(), which is called while no flag is pending, returns true. raised: of this thread's queue so far, initially 0.
template <typename Ends>
__device__ void raise_flags(SignalQueue* queues, uint32_t count, const uint32_t* open, int thread, uint32_t& raised,
                            Ends ends) {
  SignalQueue& queue = queues[static_cast<uint32_t>(thread) < count ? thread : 0];
  while (true) {
    const bool last_look = device::load_acquire_cta(open) == 0;
    const uint32_t pushed = static_cast<uint32_t>(thread) < count ? device::load_acquire_cta(&queue.pushed) : raised;
    if (__any_sync(device::all_lanes, pushed != raised)) {
      // What the pushing warps have put is on its way to peers: the flags may not overtake it.
      device::fence_system();
      while (raised != pushed) raised += queue.raise(raised, pushed - raised);
      if (static_cast<uint32_t>(thread) < count) device::store_release_cta(&queue.raised, raised);
    } else if (last_look) {
      return;
    } else if (ends()) {
      return;
    }
  }
}

}  // namespace narrowcast::channel
