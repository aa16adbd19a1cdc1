// The signal warp raises the flags of all other warps of its CTA, so that they continue while it waits for the fence.
#pragma once

#include "channel/memory/memory_channel.h"
#include "device/ptx/system_memory.cuh"
#include "device/warp.cuh"

namespace narrowcast::channel {

// Queue of the flags that one warp requests; in shared memory, initially zero.
struct SignalQueue {
  static constexpr uint32_t capacity = max_gpu_ranks;

  // A thread of the sending warp adds flag `number`, counted from 0. Waits for room.
  __device__ void push(uint32_t number, uint64_t* flag, SlotFlag word) {
    while (number - device::load_acquire_cta(&raised) >= capacity) {
    }
    flags[number % capacity] = flag;
    words[number % capacity] = word.word;
  }
  // One thread of the sending warp, after a barrier, announces that the first `number` flags have been pushed.
  __device__ void publish(uint32_t number) { device::store_release_cta(&pushed, number); }

  // The signal warp raises flag `number`. `pending` flags are pending from there on. If the next flag is adjacent in
  // the same 16 bytes, it is raised by the same store, which is cheaper than two. Returns the number of flags raised.
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

// The signal warp serves up to 32 queues until *open, the number of warps that may still push, is 0, or until ends()
// returns true; ends() is called when no flag is pending. raised: number of flags raised so far in this thread's queue,
// initially 0.
template <typename Ends>
__device__ void raise_flags(SignalQueue* queues, uint32_t count, const uint32_t* open, int thread, uint32_t& raised,
                            Ends ends) {
  SignalQueue& queue = queues[static_cast<uint32_t>(thread) < count ? thread : 0];
  while (true) {
    const bool is_last_poll = device::load_acquire_cta(open) == 0;
    const uint32_t pushed = static_cast<uint32_t>(thread) < count ? device::load_acquire_cta(&queue.pushed) : raised;
    if (__any_sync(device::all_lanes, pushed != raised)) {
      // The payloads of the pushing warps may still be in flight to peers. The flags must not overtake them.
      device::fence_system();
      while (raised != pushed) raised += queue.raise(raised, pushed - raised);
      if (static_cast<uint32_t>(thread) < count) device::store_release_cta(&queue.raised, raised);
    } else if (is_last_poll) {
      return;
    } else if (ends()) {
      return;
    }
  }
}

}  // namespace narrowcast::channel
