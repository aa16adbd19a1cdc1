// Connects the ranks of a communicator for set-up and failures, wherever they run. Data takes other paths.
#pragma once

#include <cstddef>
#include <functional>

#include "bootstrap/deadline.h"
#include "narrowcast/types.h"

namespace narrowcast::bootstrap {

class Rendezvous {
 public:
  static constexpr size_t max_round_bytes = size_t{64} << 20;  // of all ranks together, a call of all_gather
  static constexpr int max_ranks = 1024;
  static constexpr size_t sentence_bytes = 500;  // longer failure messages are truncated

  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  // Leaves. This is not a failure, but an all_gather that still needs this rank fails on the others. Waits at most one
  // second. Must not be called from the handler of on_failure().
  virtual ~Rendezvous() = default;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // Every rank gives `bytes` bytes and receives those of all in rank order, ranks() * bytes. Blocks; one thread at a
  // time; all ranks call in the same order. Errors: INVALID_ARGUMENT (too large, nothing was done); REMOTE_ERROR names
  // a rank that has left; all others are failures of the group: MISMATCH (ranks gave different numbers of bytes),
  // TIMEOUT (names the ranks that did not call), and what check_failure() says.
  virtual ncast_status all_gather(const void* mine, size_t bytes, void* all) = 0;

  // Returns when all ranks have called it. As all_gather of nothing.
  ncast_status barrier() { return all_gather(nullptr, 0, nullptr); }

  // The time limit of later all_gather calls. Any thread.
  virtual void set_limit(Limit limit) = 0;

  // Reports a failure to all ranks. The group keeps its first failure. Any thread; does not block.
  virtual void publish_failure(ncast_status status, const char* sentence) = 0;

  // The first failure known to this rank, or NCAST_OK. Its own failure has the published status. That of a peer keeps
  // ABORTED and MISMATCH; any other status becomes REMOTE_ERROR and names the rank, as does a death. Any thread.
  virtual ncast_status check_failure() const = 0;

  // `handler(status, message)` is called once, from a thread of the rendezvous, if the first failure comes from another
  // rank; at once if there is one already. It must not block, because that stops messages from peers. It is not called
  // after the destructor has returned. A second handler replaces the first, which may still be running. Any thread.
  virtual void on_failure(std::function<void(ncast_status, const char*)> handler) = 0;

 protected:
  Rendezvous(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

 private:
  int rank_;
  int ranks_;
};

}  // namespace narrowcast::bootstrap
