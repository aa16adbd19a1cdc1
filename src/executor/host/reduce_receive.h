// The receiving half of a reduction: the same chunk of every rank, accumulated in rank order and rounded once.
#pragma once

#include "executor/host/transfer.h"

namespace narrowcast::executor::host {

// Values in a chunk that is reduced: its accumulators must fit into the staging.
uint64_t reduced_chunk_elems(Communicator& comm, ncast_dtype dtype);

class ReduceReceive final : public Transfer {
 public:
  // own: this rank's contribution; result: where the reduced values go, which may be `own` itself.
  ReduceReceive(Communicator& comm, const CallTag& tag, const void* own, void* result, uint64_t elems);

  ncast_status advance(bool* moved) override;
  bool done() const override { return chunks_.done(); }
  channel::RankSet awaited() const override { return done() || turn_ == comm_.rank() ? 0 : channel::only(turn_); }

 private:
  void accumulate_values(const void* values);
  ncast_status accumulate_payload(const ReceivedChunk& chunk);
  void finish_chunk();

  Communicator& comm_;
  CallTag tag_;
  ncast_dtype dtype_;
  ncast_redop op_;
  const std::byte* own_;
  std::byte* result_;
  Chunks chunks_;
  int turn_ = 0;  // the rank whose contribution to the current chunk comes next
};

}  // namespace narrowcast::executor::host
