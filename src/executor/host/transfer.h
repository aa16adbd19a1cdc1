// Transfers of one call, divided into chunks: the sender encodes a chunk into a slot, the receiver decodes it from
// there. Each transfer is a small state machine that never waits; the engine advances all of them.
#pragma once

#include <vector>

#include "channel/host/world.h"
#include "executor/call.h"
#include "executor/host/communicator.h"

namespace narrowcast::executor::host {

class Transfer {
 public:
  virtual ~Transfer() = default;

  // Advances by at most one chunk; sets *moved if it did.
  virtual ncast_status advance(bool* moved) = 0;
  virtual bool done() const = 0;
  // The ranks that this is waiting for.
  virtual channel::RankSet awaited() const = 0;
};

// The chunks of a transfer. A transfer of no values has one empty chunk, so that the two ends always compare their
// calls.
class Chunks {
 public:
  Chunks(uint64_t elems, uint64_t elems_a_chunk) : elems_(elems), elems_a_chunk_(elems_a_chunk) {}

  bool done() const { return done_; }
  uint64_t first() const { return first_; }
  uint64_t elems() const { return elems_ - first_ < elems_a_chunk_ ? elems_ - first_ : elems_a_chunk_; }
  void next() {
    first_ += elems();
    done_ = first_ >= elems_;
  }

 private:
  uint64_t elems_;
  uint64_t elems_a_chunk_;
  uint64_t first_ = 0;
  bool done_ = false;
};

// NCAST_MISMATCH, with a message that compares this rank's call with a peer's.
ncast_status mismatch(const Communicator& comm, const CallTag& own, int peer, const CallTag& theirs);

// The codec that a call's values travel with; the library's choice for AUTO.
ncast_codec codec_of(const CallTag& tag);

// Values in a chunk that is only moved.
uint64_t moved_chunk_elems(Communicator& comm, ncast_dtype dtype);

// The content of a slot whose tag is the expected one.
struct ReceivedChunk {
  const std::byte* payload;
  uint64_t payload_bytes;
};

// The next chunk from a peer. If none has arrived, *chunk is empty and the status NCAST_OK. Error: MISMATCH.
ncast_status next_chunk(Communicator& comm, int peer, const CallTag& expected, const Chunks& chunks,
                        ReceivedChunk* chunk);

// Decodes a chunk of `elems` values to `values`.
ncast_status decode_chunk(const ReceivedChunk& chunk, const CallTag& tag, uint64_t elems, int peer, void* values);

// Whether the payloads of a call decode to the bits that were encoded.
bool is_exact(const CallTag& tag);

// Sends the same values to one or more peers; they are encoded once.
class Send final : public Transfer {
 public:
  Send(Communicator& comm, channel::RankSet peers, const CallTag& tag, const void* values, uint64_t elems,
       uint64_t elems_a_chunk);

  // Also stores at `values` what each chunk's payload decodes to, which may be where the values come from. With a
  // bounded codec, this rank thus ends with the bits that its peers get.
  void keep_decoded(void* values) { decoded_ = static_cast<std::byte*>(values); }

  ncast_status advance(bool* moved) override;
  bool done() const override { return chunks_.done(); }
  channel::RankSet awaited() const override { return done() ? 0 : waiting_; }

 private:
  ncast_status put(int peer, const channel::Slot& slot);
  ncast_status keep(const ReceivedChunk& encoded);

  Communicator& comm_;
  const channel::RankSet peers_;
  channel::RankSet waiting_;  // peers that do not have the current chunk yet
  CallTag tag_;
  const std::byte* values_;
  std::byte* decoded_ = nullptr;  // NULL: not kept
  Chunks chunks_;
  size_t frame_bytes_ = 0;  // of the current chunk, encoded in the staging; 0 before
};

// Compares a collective with those of the same number on all other ranks, and waits until they have reached the same
// phase. Nothing else tells a rank that only sends that a peer made another call.
class CompareCalls final : public Transfer {
 public:
  CompareCalls(Communicator& comm, const CallTag& tag);

  ncast_status advance(bool* moved) override;  // error: MISMATCH
  bool done() const override { return waiting_ == 0; }
  channel::RankSet awaited() const override { return waiting_; }

 private:
  Communicator& comm_;
  const CallTag tag_;
  channel::RankSet waiting_;  // peers whose call has not been compared
};

class Receive final : public Transfer {
 public:
  Receive(Communicator& comm, int peer, const CallTag& tag, void* values, uint64_t elems, uint64_t elems_a_chunk);

  ncast_status advance(bool* moved) override;
  bool done() const override { return chunks_.done(); }
  channel::RankSet awaited() const override { return done() ? 0 : channel::only(peer_); }

 private:
  Communicator& comm_;
  int peer_;
  CallTag tag_;
  std::byte* values_;
  Chunks chunks_;
};

}  // namespace narrowcast::executor::host
