// The receiving side of a reduction: accumulates the same chunk of every rank, in rank order, and rounds once.
#pragma once

#include "executor/host/transfer.h"

namespace narrowcast::executor::host {

// The number of values per chunk in transfers that reduce: the accumulators of a chunk fit into the staging buffer.
uint64_t reduced_chunk_elems(Communicator& comm, ncast_dtype dtype);

class ReduceReceive final : public Transfer {
 public:
  // own: this rank's contribution. result: receives the reduced values; may equal `own`.
  ReduceReceive(Communicator& comm, const CallTag& tag, const void* own, void* result, uint64_t elems);

  ncast_status advance(bool* progressed) override;
  bool done() const override { return chunks_.done(); }
  channel::RankSet awaited_ranks() const override {
    return done() || turn_ == comm_.rank() ? 0 : channel::rank_bit(turn_);
  }

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
  int turn_ = 0;  // the rank whose contribution to the current chunk is accumulated next
};

}  // namespace narrowcast::executor::host
