// Runs the steps of one group of a plan on this rank, as a state machine that never blocks.
#pragma once

#include "executor/host/plan_state.h"

namespace narrowcast::executor::host {

class GroupRun;
using GroupRuns = std::vector<GroupRun>;

class GroupRun {
 public:
  GroupRun(PlanState& state, const GroupRuns& all, uint32_t index);

  void begin();
  // Runs at most max_steps steps of micro-batches before `end`, until one has to wait or many bytes have been moved.
  ncast_status advance(uint64_t end, int max_steps, bool* progressed);

  uint64_t batch() const { return batch_; }
  // The ranks that the last step is waiting for.
  channel::RankSet awaited_ranks() const { return awaited_; }

 private:
  enum class Stage : uint8_t { enter, sources, stores, messages };

  bool has_completed(uint32_t step, uint64_t batch) const {
    return batch_ > batch || (batch_ == batch && step_ > step);
  }

  // A group lets the others advance, and the engine look for failures, after this many bytes. With more, a slot would
  // not be in the cache any more when it is read.
  static constexpr uint64_t max_moved_bytes = 64 << 10;
  bool may_go_on() const { return steps_left_ > 0 && moved_bytes_ < max_moved_bytes; }

  // Each of these returns, in *passed, whether the step has been completed.
  ncast_status advance_step(const plan::Step& step, bool* passed, bool* progressed);
  ncast_status advance_loop(const plan::Step& loop, bool* passed, bool* progressed);
  ncast_status advance_simple(const plan::Step& step, bool* passed);
  ncast_status advance_part(const plan::Step& step, bool* passed);
  bool dependences_hold(const plan::Step& step);
  void signal(const plan::Step& step);
  bool wait(const plan::Step& step);
  bool pass_barrier(uint32_t barrier);

  // The parts of a copy or reduction.
  ncast_status take_sources(const plan::Step& step, bool* taken);
  ncast_status take_source(const plan::Step& step, const plan::Operand& operand, bool* taken);
  void combine_everywhere(const plan::Operand& operand, std::byte* accumulator, ncast_redop op);
  ncast_redop partial_op() const;
  ncast_redop final_op(const plan::Step& step) const;
  ncast_status accumulate_source(bool is_first);
  void finish_reduction(const plan::Step& step);
  ncast_status need_values(std::byte* target, uint64_t capacity_elems);
  ncast_status store_all(const plan::Step& step);
  ncast_status store(const plan::Operand& operand, int rank);
  ncast_status send_messages(const plan::Step& step, bool* all_sent);
  ncast_status send_message(const plan::Operand& operand, const channel::Slot& slot, bool is_only_one);
  ncast_status encode_frame(ncast_codec codec);
  device::BlockContext context_of(const plan::Step& step) const;
  ncast_status check_elems() const;  // that were received
  channel::RankSet writers_of(const plan::Operand& packets, int rank) const;
  bool holds_frame(const plan::Operand& operand) const;
  uint64_t packet_frames(uint64_t elems) const;  // for values of a chunk's part, at least one
  PacketHeader* packets_of(const plan::Operand& operand, int rank, uint64_t frame) const;
  ncast_status take_packets(const plan::Operand& operand, int rank, uint64_t* wire_bytes);
  ncast_status store_packets(const plan::Operand& operand, int rank, uint64_t* wire_bytes);
  void release(const plan::Operand& operand);

  uint32_t chunk_of(const plan::Operand& operand) const { return operand.chunk + chunk_; }
  int rank_of(const plan::Operand& operand) const;
  Values locate(const plan::Operand& operand, int rank) const;
  std::atomic<uint64_t>& flag_of(const plan::Operand& operand, int rank) const;
  uint64_t flag_value() const;
  // Of the values that the step moves.
  Encoding encoding(ncast_codec codec) const { return {dtype_, codec}; }
  size_t value_bytes() const { return ncast_dtype_bytes(dtype_); }
  ncast_dtype type_of(const plan::Operand& operand) const {
    return operand.partial ? state_.partial_dtype : state_.dtype;
  }
  bool block_on(int rank);

  PlanState& state_;
  const GroupRuns& all_;
  const uint32_t index_;
  const plan::Group& group_;
  const GroupBuffers buffers_;

  uint64_t batch_ = 0;
  uint32_t step_ = 0;       // in the group
  uint32_t body_step_ = 0;  // in the loop
  uint64_t iteration_ = 0;
  uint32_t chunk_ = 0;  // of the step's operands
  Part part_;
  bool is_last_unit_ = true;
  Stage stage_ = Stage::enter;
  size_t next_ = 0;  // the source, or the channel of a wait, that comes next
  channel::RankSet awaited_ = 0;
  uint64_t moved_bytes_ = 0;  // since advance() was called
  int steps_left_ = 0;        // until it returns

  // What the step moves: values, or a message that has not been decoded (then values_ is NULL).
  ncast_dtype dtype_ = NCAST_INT8;
  const std::byte* values_ = nullptr;
  uint64_t elems_ = 0;
  Payload payload_;
  ncast_codec payload_codec_ = NCAST_CODEC_RAW;
  int payload_rank_ = 0;
  device::BlockContext context_;  // of the values
  size_t frame_bytes_ = 0;        // in buffers_.frame; 0: nothing
  ncast_codec frame_codec_ = NCAST_CODEC_RAW;
  std::vector<uint8_t> is_sent_;  // by destination
};

}  // namespace narrowcast::executor::host
