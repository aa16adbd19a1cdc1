// The transfers of a call. A transfer is divided into chunks: the sender encodes a chunk into a slot, and the receiver
// decodes it from there. Each transfer is a state machine that never blocks, and the engine advances all of them.
#pragma once

#include <vector>

#include "channel/host/world.h"
#include "executor/call.h"
#include "executor/host/communicator.h"

namespace narrowcast::executor::host {

class Transfer {
 public:
  virtual ~Transfer() = default;

  // Advances by at most one chunk for each peer. Sets *progressed if it did.
  virtual ncast_status advance(bool* progressed) = 0;
  virtual bool done() const = 0;
  // The ranks that this transfer is waiting for.
  virtual channel::RankSet awaited_ranks() const = 0;
};

// The chunks of a transfer. A transfer of no values has one empty chunk, so that the receiver always compares the
// calls.
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

// NCAST_MISMATCH, with a message that compares this rank's call with a peer's.
ncast_status mismatch(const Communicator& comm, const CallTag& own, int peer, const CallTag& theirs);

// The codec of a call's payloads: the library's choice if the call says AUTO.
ncast_codec codec_of(const CallTag& tag);

// The number of values per chunk in transfers that do not reduce.
uint64_t moved_chunk_elems(Communicator& comm, ncast_dtype dtype);

// The payload of a slot whose tag has been checked.
struct ReceivedChunk {
  const std::byte* payload;
  uint64_t payload_bytes;
};

// Gets the next chunk from a peer. If none has arrived, *chunk is empty and the status NCAST_OK. Errors: MISMATCH,
// CORRUPT.
ncast_status next_chunk(Communicator& comm, int peer, const CallTag& expected, const Chunks& chunks,
                        ReceivedChunk* chunk);

// Decodes a chunk of `elems` values to `values`.
ncast_status decode_chunk(const ReceivedChunk& chunk, const CallTag& tag, uint64_t elems, int peer, void* values);

// Whether the payloads of a call decode to the bits that were encoded.
bool is_exact(const CallTag& tag);

// Sends the same values to one or more peers, encoding each chunk once.
class Send final : public Transfer {
 public:
  Send(Communicator& comm, channel::RankSet peers, const CallTag& tag, const void* values, uint64_t elems,
       uint64_t elems_per_chunk);

  // Also decodes each chunk's payload to `values`, which may be the source. With a bounded codec this gives this rank
  // the same bits as its peers.
  void keep_decoded(void* values) { decoded_ = static_cast<std::byte*>(values); }

  ncast_status advance(bool* progressed) override;
  bool done() const override { return chunks_.done(); }
  channel::RankSet awaited_ranks() const override { return done() ? 0 : waiting_; }

 private:
  ncast_status put(int peer, const channel::Slot& slot);
  ncast_status keep(const ReceivedChunk& encoded);

  Communicator& comm_;
  const channel::RankSet peers_;
  channel::RankSet waiting_;  // peers that the current chunk has not been sent to
  CallTag tag_;
  const std::byte* values_;
  std::byte* decoded_ = nullptr;  // the target of keep_decoded(), or NULL
  Chunks chunks_;
  size_t frame_bytes_ = 0;  // size of the current chunk's frame in the staging buffer; 0: not encoded yet
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

class Receive final : public Transfer {
 public:
  Receive(Communicator& comm, int peer, const CallTag& tag, void* values, uint64_t elems, uint64_t elems_per_chunk);

  ncast_status advance(bool* progressed) override;
  bool done() const override { return chunks_.done(); }
  channel::RankSet awaited_ranks() const override { return done() ? 0 : channel::rank_bit(peer_); }

 private:
  Communicator& comm_;
  int peer_;
  CallTag tag_;
  std::byte* values_;
  Chunks chunks_;
};

}  // namespace narrowcast::executor::host
