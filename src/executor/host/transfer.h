// The transfers of a call. A transfer is a state machine that never blocks; the engine advances all of them.
#pragma once

#include <vector>

#include "channel/host/world.h"
#include "executor/call.h"
#include "executor/host/communicator.h"
#include "executor/host/message.h"

namespace narrowcast::executor::host {

class Transfer {
 public:
  virtual ~Transfer() = default;

  // Advances, if it can, without waiting. Sets *progressed if it did.
  virtual ncast_status advance(bool* progressed) = 0;
  virtual bool done() const = 0;
  // The ranks that this transfer is waiting for.
  virtual channel::RankSet awaited_ranks() const = 0;
};

// The chunks of a message: the sender encodes a chunk into a slot, and the receiver decodes it from there. A message of
// no values has one empty chunk, so that the receiver always compares the calls.
class Chunks {
 public:
  Chunks(uint64_t elems, uint64_t elems_per_chunk) : elems_(elems), elems_per_chunk_(elems_per_chunk) {}

  bool done() const { return done_; }
  uint64_t first() const { return first_; }
  uint64_t elems() const { return elems_ - first_ < elems_per_chunk_ ? elems_ - first_ : elems_per_chunk_; }
  void next() {
    first_ += elems();
    done_ = first_ >= elems_;
  }

 private:
  uint64_t elems_;
  uint64_t elems_per_chunk_;
  uint64_t first_ = 0;
  bool done_ = false;
};

// Sends values to a peer.
class Send final : public Transfer {
 public:
  Send(Communicator& comm, int peer, const CallTag& tag, const Encoding& encoding, const void* values, uint64_t elems);

  ncast_status advance(bool* progressed) override;
  bool done() const override { return chunks_.done(); }
  channel::RankSet awaited_ranks() const override { return done() ? 0 : channel::rank_bit(peer_); }

 private:
  Communicator& comm_;
  const int peer_;
  CallTag tag_;
  const Encoding encoding_;
  const std::byte* values_;
  Chunks chunks_;
};

class Receive final : public Transfer {
 public:
  Receive(Communicator& comm, int peer, const CallTag& tag, const Encoding& encoding, void* values, uint64_t elems);

  ncast_status advance(bool* progressed) override;
  bool done() const override { return chunks_.done(); }
  channel::RankSet awaited_ranks() const override { return done() ? 0 : channel::rank_bit(peer_); }

 private:
  Communicator& comm_;
  const int peer_;
  CallTag tag_;
  const Encoding encoding_;
  std::byte* values_;
  Chunks chunks_;
};

// Compares a collective with that of the same number on all other ranks, and waits until they have reached the same
// phase. Without it, a rank that only sends would not notice that a peer made another call.
class CompareCalls final : public Transfer {
 public:
  CompareCalls(Communicator& comm, const CallTag& tag);

  ncast_status advance(bool* progressed) override;  // error: MISMATCH
  bool done() const override { return waiting_ == 0; }
  channel::RankSet awaited_ranks() const override { return waiting_; }

 private:
  Communicator& comm_;
  const CallTag tag_;
  channel::RankSet waiting_;  // peers whose call has not been compared yet
};

// A copy of values within this rank.
class Copy final : public Transfer {
 public:
  Copy(const void* from, void* to, size_t bytes) : from_(from), to_(to), bytes_(bytes) {}

  ncast_status advance(bool* progressed) override;
  bool done() const override { return done_; }
  channel::RankSet awaited_ranks() const override { return 0; }

 private:
  const void* from_;
  void* to_;
  size_t bytes_;
  bool done_ = false;
};

}  // namespace narrowcast::executor::host
