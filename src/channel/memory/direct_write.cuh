// The device side of direct writes: sending and receiving invitations, and writing to the receiver's memory.
#pragma once

#include "channel/memory/direct_write.h"
#include "channel/memory/memory_channel.cuh"
#include "channel/peer/bounded_wait.cuh"
#include "device/copy.cuh"

namespace narrowcast::channel {

// Sends an invitation. One thread of the receiver calls this for each sender, once in a call.
__device__ inline void invite(const Peers& peers, const ChannelLayout& layout, DirectWrites& state, int sender,
                              RegionPlace place, uint32_t mark, uint32_t stopped) {
  auto* const word = in_scratch<uint64_t>(peers, sender, layout.invitation(peers.rank, peers.ranks));
  const uint32_t number = state.invitations_sent[sender] + 1;
  if (is_stopped(stopped)) return;
  state.invitations_sent[sender] = number;
  // Release: earlier work on this rank's stream is complete before the sender writes.
  device::store_release(word, Invitation::of(number, mark, place).word);
}

// The ends of a sending warp that may write directly. The whole warp calls every function.
class DirectEnds {
 public:
  // Waits for the invitation to this thread's end if its peer sends one. inviting_peers: bit mask of the peers that
  // send one; if it is 0, state may be NULL. marks: of the call, by peer; invitations to other calls are ignored.
  // False: the communicator is stopped.
  __device__ bool begin(const Peers& peers, const ChannelLayout& layout, DirectWrites* state, End end,
                        uint32_t inviting_peers, const uint16_t* marks) {
    bool ready = true;
    if (end.peer >= 0 && (inviting_peers >> end.peer & 1) != 0) {
      const auto* const word = in_scratch<uint64_t>(peers, peers.rank, layout.invitation(end.peer, peers.ranks));
      const uint32_t number = state->invitations_received[end.peer] + 1, mark = marks[end.peer];
      Invitation invitation{};
      ready = wait_until(peers, end.peer, [&] {
        invitation.word = device::load_acquire(word);
        return invitation.is_of(number, mark);
      });
      const RegionPlace place = invitation.place();
      if (ready && place.region != 0) ready = is_valid(peers, *state, end, number);
      if (ready && place.region != 0) destination_ = state->regions[place.region][end.peer] + place.offset;
    }
    mask_ = __ballot_sync(device::all_lanes, destination_ != nullptr);
    return __all_sync(device::all_lanes, ready);
  }

  // The ends that may write directly.
  __device__ EndMask mask() const { return mask_; }

  // Writes any number of bytes from shared memory, which the warp has written, to the destination of each of these ends
  // plus `offset`.
  __device__ void write(EndMask ends, uint64_t offset, const char* values, uint32_t bytes, int thread) const {
    __syncwarp();
    for (; ends != 0; ends &= ends - 1) {
      const auto destination =
          __shfl_sync(device::all_lanes, reinterpret_cast<unsigned long long>(destination_), __ffs(ends) - 1);
      device::copy_bytes<4>(reinterpret_cast<char*>(destination) + offset, values, bytes, thread);
    }
  }

 private:
  // Whether the communicator is not stopped. If it is, the peer's call may have ended and returned the memory to the
  // user. Only the thread with the peer's first ring loads the stop word from host memory, and tells the others. Loads
  // of one word of host memory are served one after the other, a microsecond each, and hundreds of warps have ends.
  static __device__ bool is_valid(const Peers& peers, DirectWrites& state, End end, uint32_t number) {
    uint32_t* const checked = &state.invitations_checked[end.peer];
    if (end.ring == 0) {
      if (device::load_relaxed(&peers.control->stop) != 0) return false;
      device::store_relaxed(checked, number);
      return true;
    }
    return wait_until(peers, end.peer, [&] { return device::load_relaxed(checked) == number; });
  }

  char* destination_ = nullptr;  // of this thread's end; NULL: uses slots
  EndMask mask_ = 0;
};

}  // namespace narrowcast::channel
