// Invitations in a kernel, and writing where they lead.
#pragma once

#include "channel/memory/direct_write.h"
#include "channel/memory/memory_channel.cuh"
#include "channel/peer/bounded_wait.cuh"
#include "device/copy.cuh"

namespace narrowcast::channel {

// One thread of the receiver for each sender, once a call.
__device__ inline void invite(const Peers& peers, const ChannelLayout& layout, StraightWrites& state, int sender,
                              RegionPlace place, uint32_t mark, uint32_t stopped) {
  auto* const word = in_scratch<uint64_t>(peers, sender, layout.invitation(peers.rank, peers.ranks));
  const uint32_t number = state.sent[sender] + 1;
  if (is_stopped(stopped)) return;
  state.sent[sender] = number;
  // Release: what this rank's stream did before is not to come after what the sender writes.
  device::store_release(word, Invitation::of(number, mark, place).word);
}

// The ends of a sending warp that write straight to where values end up. The whole warp calls every function.
class StraightEnds {
 public:
  // Waits for the invitation of this thread's end, if it is of one of the peers, given as bits, that send one; state
  // may be NULL where none does. marks: by peer; an invitation to another call is not taken. False: the communicator is
  // stopped.
  __device__ bool begin(const Peers& peers, const ChannelLayout& layout, const StraightWrites* state, End end,
                        uint32_t inviting, const uint16_t* marks) {
    bool ready = true;
    if (end.peer >= 0 && (inviting >> end.peer & 1) != 0) {
      const auto* const word = in_scratch<uint64_t>(peers, peers.rank, layout.invitation(end.peer, peers.ranks));
      const uint32_t number = state->received[end.peer] + 1, mark = marks[end.peer];
      Invitation invitation{};
      ready = wait_until(peers, end.peer, [&] {
        invitation.word = device::load_acquire(word);
        return invitation.is_of(number, mark);
      });
      const RegionPlace place = invitation.place();
      // A call of the peer that has ended without this one was stopped, and its memory is the user's again.
      if (ready && place.region != 0) ready = device::load_relaxed(&peers.control->stop) == 0;
      if (ready && place.region != 0) to_ = state->regions[place.region][end.peer] + place.offset;
    }
    mask_ = __ballot_sync(device::all_lanes, to_ != nullptr);
    return __all_sync(device::all_lanes, ready);
  }

  // Those that have been invited.
  __device__ EndMask mask() const { return mask_; }

  // Writes `bytes` of any number, from shared memory that the warp has written, `offset` behind where each of these
  // ends was invited to.
  __device__ void write(EndMask ends, uint64_t offset, const char* values, uint32_t bytes, int thread) const {
    __syncwarp();
    for (; ends != 0; ends &= ends - 1) {
      const auto to = __shfl_sync(device::all_lanes, reinterpret_cast<unsigned long long>(to_), __ffs(ends) - 1);
      device::copy_by_warp(reinterpret_cast<char*>(to) + offset, values, bytes, thread);
    }
  }

 private:
  char* to_ = nullptr;  // of this thread's end
  EndMask mask_ = 0;
};

}  // namespace narrowcast::channel
