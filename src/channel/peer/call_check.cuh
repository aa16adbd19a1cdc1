// Announces a kernel's call to the peers and compares the peers' announcements with it (call_word.h).
#pragma once

#include <bit>

#include "channel/peer/bounded_wait.cuh"
#include "channel/peer/call_word.h"

namespace narrowcast::channel {

__device__ inline CallWords* call_words(const Peers& peers, const AnnouncedCall& call, int rank) {
  return reinterpret_cast<CallWords*>(peers.scratch[rank] + call.words);
}

// One warp of a kernel, whose first threads each look after one peer and kind of call. The whole warp calls every
// function.
//
// A collective must not end before finish(), which returns when every rank has announced its call, so that even a rank
// that only sends learns of a mismatch. A send does not wait for its receiver, which may not be there yet: a rank whose
// send fits into the slots learns of a mismatch later, from the receiver's failure.
class CallCheck {
 public:
  // Announces the call, from CTA 0; not if the communicator was stopped before this kernel began. of_messages: marks
  // of sends and receives, not of a collective.
  __device__ CallCheck(const Peers& peers, const AnnouncedCall& call, bool of_messages, int thread) {
    peer_ = thread % max_gpu_ranks;
    const int group = thread / max_gpu_ranks;  // 0: what comes from the peers; 1: what goes to them
    const CallKind kind = !of_messages ? CallKind::collective : group == 0 ? CallKind::recv : CallKind::send;
    const auto mine = static_cast<uint32_t>(kind), theirs = static_cast<uint32_t>(kind_of_peer(kind));
    CallWords* const own = call_words(peers, call, peers.rank);
    uint32_t* const count = of_messages ? &own->messages[mine][peer_] : &own->block_collectives;
    // Both loads are in flight together.
    const uint64_t cta = device::load_relaxed(reinterpret_cast<const uint64_t*>(peers.ctas));
    const uint32_t calls = device::load_relaxed(count);
    const auto [packet_calls, stopped] = std::bit_cast<CtaState>(cta);
    uint32_t mark = 0;
    if (group < (of_messages ? 2 : 1)) mark = group == 0 ? call.from[peer_] : call.to[peer_];
    __syncwarp();  // all threads have loaded block_collectives
    if (mark == 0 || stopped != 0) return;

    *count = calls + 1;
    const uint32_t number = calls + 1 + (of_messages ? 0 : packet_calls);
    const uint32_t place = number % CallWords::kept;
    expected_ = CallWord::of(number, mark);
    own->current[theirs][peer_] = expected_.word;
    awaited_ = &own->announced[theirs][place][peer_];
    const CallWord word = CallWord::of(number, of_messages ? mark : call.to[peer_]);
    device::store_relaxed(&call_words(peers, call, peer_)->announced[mine][place][peers.rank], word.word);
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
