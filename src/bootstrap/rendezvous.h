// Connects the ranks of a communicator, to exchange small blobs during set-up and to report failures. Data travels
// through channels.
#pragma once

#include <cstddef>
#include <functional>

#include "bootstrap/deadline.h"
#include "narrowcast/types.h"

namespace narrowcast::bootstrap {

class Rendezvous {
 public:
  static constexpr size_t max_round_bytes = size_t{64} << 20;  // per all_gather, of all ranks together
  static constexpr size_t max_pair_bytes = 4096;
  static constexpr int max_ranks = 1024;
  static constexpr size_t failure_message_bytes = 500;  // longer failure messages are truncated

  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  // Leaves the group. This is not a failure, but an all_gather that this rank has not called fails on the other ranks.
  // Waits at most one second. Must not be called from the handler of on_failure().
  virtual ~Rendezvous() = default;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // Every rank contributes `bytes` bytes and receives the contributions of all ranks, in rank order: ranks() * bytes.
  // Blocks. One thread at a time; all ranks call in the same order. Errors that leave the group usable:
  // INVALID_ARGUMENT (too large; nothing was done) and REMOTE_ERROR with the name of a rank that has left. Errors that
  // are failures of the group: MISMATCH (different `bytes`), TIMEOUT (names the ranks that did not call), and the
  // errors of check_failure().
  virtual ncast_status all_gather(const void* mine, size_t bytes, void* all) = 0;

  // Both of two ranks contribute `bytes` bytes, at most max_pair_bytes, and receive those of the other one. Blocks. Any
  // thread; one call at a time for each peer. Calls of other pairs and all_gather do not matter. Errors as for
  // all_gather.
  virtual ncast_status exchange_with(int peer, const void* mine, size_t bytes, void* theirs) = 0;

  // Returns when all ranks have called it. Like all_gather with 0 bytes.
  ncast_status barrier() { return all_gather(nullptr, 0, nullptr); }

  // Sets the time limit of later all_gather calls. Any thread.
  virtual void set_limit(Limit limit) = 0;

  // Reports a failure to all ranks. The group keeps its first failure. Any thread; does not block.
  virtual void publish_failure(ncast_status status, const char* message) = 0;

  // The first failure known to this rank, or NCAST_OK. A failure that this rank published has the published status, one
  // of a peer that of status_at_peers() and the name of the peer. The death of a peer is REMOTE_ERROR. Any thread.
  virtual ncast_status check_failure() const = 0;

  // Sets a handler for failures of other ranks. `handler(status, message)` is called once, from a thread of the
  // rendezvous, if the first failure comes from another rank; soon, if it has already happened. It must not block,
  // because that thread also receives from peers. A second handler, or none, replaces the first; if the first is
  // running, the function returns when it has ended. Any thread, but not from a handler.
  virtual void on_failure(std::function<void(ncast_status, const char*)> handler) = 0;

 protected:
  Rendezvous(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

 private:
  int rank_;
  int ranks_;
};

}  // namespace narrowcast::bootstrap
