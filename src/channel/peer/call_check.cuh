// Announces a kernel's call to the peers and compares the peers' announcements with it (call_word.h).
#pragma once

#include "channel/peer/bounded_wait.cuh"
#include "channel/peer/call_word.h"

namespace narrowcast::channel {

__device__ inline CallWords* call_words(const Peers& peers, const AnnouncedCall& call, int rank) {
  return reinterpret_cast<CallWords*>(peers.scratch[rank] + call.words);
}

// What the kernels of this rank load when they begin. Through the L1 cache: the previous kernel of the stream wrote it.
__device__ __forceinline__ CtaState cta_state(const Peers& peers) {
  const uint2 state = *reinterpret_cast<const uint2*>(&peers.ctas[blockIdx.x % cta_states]);
  return {state.x, state.y};
}

// One warp of a kernel, whose first threads each look after one peer and kind of call. The whole warp calls every
// function.
//
// A collective must not end before finish(): it returns when every rank has announced its call, so that even a rank
// that only sends learns of a mismatch. A send does not wait for its receiver, which may not be there yet: a rank whose
// send fits into the slots learns of a mismatch later, from the receiver's failure.
class CallCheck {
 public:
  // Of a kernel that has nothing to check.
  __device__ CallCheck() {}

  // Announces the call. cta: of CTA 0, loaded by this thread. If the communicator was stopped before this kernel began,
  // nothing is announced or checked.
  __device__ CallCheck(const Peers& peers, const AnnouncedCall& call, CtaState cta, int thread) {
    peer_ = thread % max_gpu_ranks;
    const int group = thread / max_gpu_ranks;  // 0: what comes from the peers; 1: what goes to them
    uint32_t mark = 0;
    if (cta.stopped == 0 && group < (call.of_messages ? 2 : 1)) mark = group == 0 ? call.from[peer_] : call.to[peer_];
    CallWords* const own = call_words(peers, call, peers.rank);
    const CallKind kind = !call.of_messages ? CallKind::collective : group == 0 ? CallKind::recv : CallKind::send;
    const auto mine = static_cast<uint32_t>(kind), theirs = static_cast<uint32_t>(kind_of_peer(kind));
    uint32_t* const count = call.of_messages ? &own->messages[mine][peer_] : &own->block_collectives;
    uint32_t number = 0;
    if (mark != 0) number = *count + 1;
    __syncwarp();  // all threads have read block_collectives
    if (mark == 0) return;
    *count = number;
    if (!call.of_messages) number += cta.packet_calls;
    expected_ = CallWord::of(number, mark);
    own->current[theirs][peer_] = expected_.word;
    awaited_ = &own->announced[theirs][number % CallWords::kept][peer_];
    const CallWord word = CallWord::of(number, call.of_messages ? mark : call.to[peer_]);
    device::store_relaxed(&call_words(peers, call, peer_)->announced[mine][number % CallWords::kept][peers.rank],
                          word.word);
    must_come_ = kind != CallKind::send;
  }

  // Compares what the last poll loaded, and loads it again: the load is in flight while the warp does something else. A
  // mismatch is reported. False: everything has been compared.
  __device__ bool poll(const Peers& peers) {
    poll_own(peers);
    return __any_sync(device::all_lanes, awaited_ != nullptr);
  }

  // Waits for the announcements without which the kernel must not end, or until the communicator is stopped. Those of
  // receivers are waited for until is_sending() returns false.
  template <typename IsSending>
  __device__ void finish(const Peers& peers, IsSending is_sending) {
    uint32_t spin = 0;
    wait_until_all(peers, peer_, [&] {
      // The result of a load delays the end of the kernel: it is worth that only when the receiver must come.
      if (must_come_ || ++spin % spins_between_optional_polls == 0) poll_own(peers);
      return awaited_ == nullptr || (!must_come_ && !is_sending());
    });
  }

 private:
  static constexpr uint32_t spins_between_optional_polls = 256;

  __device__ void poll_own(const Peers& peers) {
    if (awaited_ == nullptr) return;
    if (loaded_.is_same_call(expected_)) {
      awaited_ = nullptr;
      if (loaded_.disagrees_with(expected_)) stop_kernels(peers, peer_, call_mismatch);
    } else {
      loaded_.word = device::load_relaxed(awaited_);
    }
  }

  const uint64_t* awaited_ = nullptr;  // NULL: nothing more to compare
  CallWord expected_{}, loaded_{};
  int peer_ = 0;
  bool must_come_ = false;
};

}  // namespace narrowcast::channel
