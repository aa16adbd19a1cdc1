// The ranks of a communicator that may be anywhere, for set-up and for bad news; data takes other ways.
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
  static constexpr size_t sentence_bytes = 500;  // longer sentences of failures are cut

  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  // Leaves. That is no failure, but an all_gather of the others that still needs this rank is an error. Waits a second
  // at most. Not from the handler of on_failure().
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

  // How long each all_gather that begins from now on waits. Any thread.
  virtual void set_limit(Limit limit) = 0;

  // Tells all ranks of a failure. The first failure of the group stays. Any thread; does not block.
  virtual void publish_failure(ncast_status status, const char* sentence) = 0;

  // The first failure that this rank knows of, or NCAST_OK. Its own is as it was published; one of a peer stays ABORTED
  // or MISMATCH and becomes REMOTE_ERROR otherwise, naming the rank; a death is REMOTE_ERROR. Any thread.
  virtual ncast_status check_failure() const = 0;

  // `handler(status, sentence)` is called once, from a thread of the rendezvous, when the first failure is not this
  // rank's own; soon if there was one already. It must not block, for then nothing more is heard of the peers, and is
  // not called once the destructor has returned. A second handler takes the place of the first, which may be running
  // just then. Any thread.
  virtual void on_failure(std::function<void(ncast_status, const char*)> handler) = 0;

 protected:
  Rendezvous(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

 private:
  int rank_;
  int ranks_;
};

}  // namespace narrowcast::bootstrap
