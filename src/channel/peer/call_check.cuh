// Announces a kernel's call to the peers and compares their announcements with it (call_word.h).
#pragma once

#include <bit>

#include "channel/peer/bounded_wait.cuh"
#include "channel/peer/call_word.h"

namespace narrowcast::channel {

__device__ inline CallWords* call_words(const Peers& peers, const AnnouncedCall& call, int rank) {
  return reinterpret_cast<CallWords*>(peers.scratch[rank] + call.words);
}

// Used by one warp of a kernel. Each of its first threads handles one peer and kind of call. The whole warp calls every
// function.
//
// A collective must call finish() before it ends. finish() returns when every rank has announced its call, so that even
// a rank that only sends detects a mismatch. A send does not wait for its receiver, which may call much later: a rank
// whose data fit into the slots learns about a mismatch later, from the receiver's failure.
class CallCheck {
 public:
  // Has nothing to compare.
  CallCheck() = default;
  // Announces the call, unless the communicator was stopped before this kernel began. Only CTA 0 may construct this.
  // is_point_to_point: the marks are those of sends and receives, not of a collective.
  __device__ CallCheck(const Peers& peers, const AnnouncedCall& call, bool is_point_to_point, int thread) {
    peer_ = thread % max_gpu_ranks;
    const int group = thread / max_gpu_ranks;  // 0: data from the peers; 1: data to them
    const CallKind kind = !is_point_to_point ? CallKind::collective : group == 0 ? CallKind::recv : CallKind::send;
    const auto own_kind = static_cast<uint32_t>(kind), peer_kind = static_cast<uint32_t>(kind_of_peer(kind));
    CallWords* const own = call_words(peers, call, peers.rank);
    uint32_t* const count = is_point_to_point ? &own->messages[own_kind][peer_] : &own->block_collectives;
    // Issue both loads before using either.
    const uint64_t cta = device::load_relaxed(reinterpret_cast<const uint64_t*>(peers.ctas));
    const uint32_t calls = device::load_relaxed(count);
    const auto [packet_calls, stopped] = std::bit_cast<CtaState>(cta);
    uint32_t mark = 0;
    if (group < (is_point_to_point ? 2 : 1)) mark = group == 0 ? call.from[peer_] : call.to[peer_];
    __syncwarp();  // all threads have loaded block_collectives
    if (mark == 0 || stopped != 0) return;

    *count = calls + 1;
    const uint32_t number = calls + 1 + (is_point_to_point ? 0 : packet_calls);
    const uint32_t index = number % CallWords::history;
    expected_ = CallWord::of(number, mark);
    own->current[peer_kind][peer_] = expected_.word;
    awaited_ = &own->announced[peer_kind][index][peer_];
    const CallWord word = CallWord::of(number, is_point_to_point ? mark : call.to[peer_]);
    device::store_relaxed(&call_words(peers, call, peer_)->announced[own_kind][index][peers.rank], word.word);
    is_required_ = kind != CallKind::send;
  }

  // Compares the words that the previous call of poll() loaded, and starts loading those that have not arrived, so that
  // the loads overlap with other work of the warp. Reports a mismatch. Returns false if all words have been compared.
  __device__ bool poll(const Peers& peers) {
    poll_thread(peers);
    return __any_sync(device::all_lanes, awaited_ != nullptr);
  }

  // Waits for the announcements that must arrive before the kernel ends, or until the communicator is stopped.
  // Announcements of receivers are awaited only until is_sending() returns false.
  template <typename IsSending>
  __device__ void finish(const Peers& peers, IsSending is_sending) {
    uint32_t spin = 0;
    wait_until_all(peers, peer_, [&] {
      // A load in flight delays the end of the kernel, so poll rarely for announcements that are not required.
      if (is_required_ || ++spin % spins_between_optional_polls == 0) poll_thread(peers);
      return awaited_ == nullptr || (!is_required_ && !is_sending());
    });
  }

 private:
  static constexpr uint32_t spins_between_optional_polls = 256;

  __device__ void poll_thread(const Peers& peers) {
    if (awaited_ == nullptr) return;
    if (loaded_.is_same_call(expected_)) {
      awaited_ = nullptr;
      if (loaded_.disagrees_with(expected_)) stop_kernels(peers, peer_, call_mismatch);
    } else {
      loaded_.word = device::load_relaxed(awaited_);
    }
  }

  const uint64_t* awaited_ = nullptr;  // NULL: nothing left to compare
  CallWord expected_{}, loaded_{};
  int peer_ = 0;
  bool is_required_ = false;
};

}  // namespace narrowcast::channel
