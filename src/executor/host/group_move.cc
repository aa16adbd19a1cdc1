// Copies and reductions: a step takes its sources, stores the result to the locations among its destinations, then
// sends it as messages.
#include <bit>
#include <cinttypes>
#include <cstring>

#include "executor/host/group_run.h"
#include "executor/host/reduction.h"
#include "status/error.h"

namespace narrowcast::executor::host {

using plan::Operand;
using plan::Place;
using plan::Step;
using plan::StepKind;

namespace {

constexpr uint64_t complete_flag = 0xffffffff;

bool is_message(const Operand& operand) { return operand.place == Place::message; }

bool is_coded(const Operand& operand) { return operand.codec != NCAST_CODEC_RAW; }

}  // namespace

int GroupRun::rank_of(const Operand& operand) const {
  if (operand.place != Place::remote) return state_.comm.rank();
  const plan::Channel& channel = state_.plan->channels[operand.channel];
  return channel.from == state_.comm.rank() ? channel.to : channel.from;
}

Values GroupRun::locate(const Operand& operand, int rank) const {
  return state_.locate(rank, operand.buffer, chunk_of(operand), part_, ncast_dtype_bytes(type_of(operand)));
}

channel::RankSet GroupRun::writers_of(const Operand& packets, int rank) const {
  return state_.facts.packet_writers(rank, packets.buffer, chunk_of(packets));
}

std::atomic<uint64_t>& GroupRun::flag_of(const Operand& operand, int rank) const {
  return state_.memory.flag(rank, operand.buffer, chunk_of(operand), state_.copy_of(batch_));
}

// Whether a location contains packets that are encoded.
bool GroupRun::holds_frame(const Operand& operand) const {
  return operand.packets && is_coded(operand) && state_.facts.encoded_packets.exist;
}

// frame: of those of the step's values.
PacketHeader* GroupRun::packets_of(const Operand& operand, int rank, uint64_t frame) const {
  return state_.memory.packets(rank, chunk_of(operand), state_.copy_of(batch_),
                               part_.first / state_.packet_frame_elems + frame);
}

// Flags increase: the high half is the number of the micro-batch, the low half that of its values up to the end of the
// unit, because the loops of the writer and the reader may have different units. A micro-batch has fewer than 2^32
// values.
uint64_t GroupRun::flag_value() const {
  const uint64_t values = is_last_unit_ ? complete_flag : part_.first + part_.elems;
  return (state_.epoch + batch_ + 1) << 32 | values;
}

uint64_t GroupRun::packet_frames(uint64_t elems) const {
  return std::max<uint64_t>(1, (elems + state_.packet_frame_elems - 1) / state_.packet_frame_elems);
}

// --- sources

ncast_status GroupRun::take_sources(const Step& step, bool* taken) {
  if (step.kind == StepKind::copy) return take_source(step, step.from[0], taken);
  for (; next_ < step.from.size(); ++next_) {
    const Operand& source = step.from[next_];
    const uint64_t fewest = elems_;
    bool here = false;
    if (ncast_status status = take_source(step, source, &here)) return status;
    if (!here) {
      elems_ = fewest;
      return NCAST_OK;
    }
    if (next_ != 0) elems_ = std::min(elems_, fewest);
    if (ncast_status status = accumulate_source(next_ == 0)) return status;
    release(source);
  }
  finish_reduction(step);
  *taken = true;
  return NCAST_OK;
}

// Makes one source the values, or the message, that the step moves.
ncast_status GroupRun::take_source(const Step& step, const Operand& operand, bool* taken) {
  frame_bytes_ = 0;
  payload_ = {};
  dtype_ = type_of(operand);
  if (is_message(operand)) {
    channel::RingReceiver& ring = state_.memory.receiver(operand.channel);
    const int peer = state_.plan->channels[operand.channel].from;
    CallTag expected = state_.tag;
    expected.position = state_.received[operand.channel];
    if (ncast_status status = next_message(state_.comm, peer, ring, expected, &payload_, &elems_)) return status;
    if (payload_.bytes == nullptr) {
      block_on(peer);
      return NCAST_OK;
    }
    payload_codec_ = operand.codec;
    payload_rank_ = peer;
    if (ncast_status status = check_elems()) return status;
    values_ = nullptr;
    // Bare values need no decoding, unless their number is wrong.
    if (operand.codec == NCAST_CODEC_RAW && payload_.count == elems_ * value_bytes()) values_ = payload_.bytes;
  } else if (operand.place == Place::everywhere) {
    elems_ = locate(operand, state_.comm.rank()).elems;
    const uint64_t got = (state_.plan->channels[operand.channel].ranks.size() - 1) * elems_ * state_.value_bytes;
    state_.comm.count_sent(state_.tag.operation, got, got);
    combine_everywhere(operand, step.kind == StepKind::reduce ? buffers_.inner : buffers_.accumulator,
                       step.kind == StepKind::reduce ? partial_op() : final_op(step));
    values_ = buffers_.values;
  } else {
    const int rank = rank_of(operand);
    if (operand.packets && flag_of(operand, rank).load(std::memory_order_acquire) < flag_value()) {
      awaited_ |= writers_of(operand, rank) & ~channel::rank_bit(state_.comm.rank());
      return NCAST_OK;
    }
    uint64_t wire_bytes = 0;
    if (holds_frame(operand)) {
      if (ncast_status status = take_packets(operand, rank, &wire_bytes)) return status;
    } else {
      const Values values = locate(operand, rank);
      values_ = values.start;
      elems_ = values.elems;
      wire_bytes = elems_ * state_.value_bytes;
    }
    if (operand.place == Place::remote) {
      state_.comm.count_sent(state_.tag.operation, elems_ * state_.value_bytes, wire_bytes);
    }
  }
  *taken = true;
  return NCAST_OK;
}

// One frame becomes the message that the step moves. Several are decoded.
ncast_status GroupRun::take_packets(const Operand& operand, int rank, uint64_t* wire_bytes) {
  const uint64_t frames = packet_frames(locate(operand, rank).elems);
  payload_codec_ = operand.codec;
  payload_rank_ = std::countr_zero(writers_of(operand, rank));
  values_ = frames == 1 ? nullptr : buffers_.values;
  elems_ = 0;
  for (uint64_t i = 0; i < frames; ++i) {
    const PacketHeader* const packets = packets_of(operand, rank, i);
    payload_ = {reinterpret_cast<const std::byte*>(packets + 1), packets->frame_bytes};
    std::byte* const values = buffers_.values + elems_ * state_.value_bytes;
    elems_ += packets->elems;
    *wire_bytes += packets->frame_bytes;
    if (ncast_status status = check_elems()) return status;
    if (frames == 1) return NCAST_OK;
    if (ncast_status status = decode(encoding(operand.codec), payload_, packets->elems, payload_rank_, values))
      return status;
  }
  payload_ = {};
  return NCAST_OK;
}

ncast_status GroupRun::check_elems() const {
  if (elems_ <= state_.part_elems) return NCAST_OK;
  return fail(NCAST_CORRUPT, "rank %d received %" PRIu64 " values from rank %d at once, more than %" PRIu64,
              state_.comm.rank(), elems_, payload_rank_, state_.part_elems);
}

void GroupRun::release(const Operand& operand) {
  if (!is_message(operand)) return;
  state_.memory.receiver(operand.channel).release();
  ++state_.received[operand.channel];
}

// Reduces the same chunk of all ranks of a switch, in rank order, into buffers_.values.
void GroupRun::combine_everywhere(const Operand& operand, std::byte* accumulator, ncast_redop op) {
  const std::vector<int>& ranks = state_.plan->channels[operand.channel].ranks;
  for (const int rank : ranks) {
    const std::byte* values = locate(operand, rank).start;
    if (rank == ranks.front())
      accumulate_first(state_.dtype, values, elems_, accumulator);
    else
      accumulate(state_.dtype, op, values, elems_, accumulator);
  }
  finish(state_.dtype, op, state_.comm.ranks(), accumulator, elems_, buffers_.values);
}

// A sum is divided once, where it has the values of all ranks.
ncast_redop GroupRun::partial_op() const { return state_.redop == NCAST_AVG ? NCAST_SUM : state_.redop; }
ncast_redop GroupRun::final_op(const Step& step) const {
  return state_.redop == NCAST_AVG && state_.completes(step) ? NCAST_AVG : partial_op();
}

ncast_status GroupRun::accumulate_source(bool is_first) {
  if (ncast_status status = need_values(buffers_.values, elems_)) return status;
  if (is_first)
    accumulate_first(dtype_, values_, elems_, buffers_.accumulator);
  else
    accumulate(dtype_, state_.redop, values_, elems_, buffers_.accumulator);
  return NCAST_OK;
}

// Rounds the result, unless it is a partial sum, to the first location that can hold it, or else to the group's own
// buffer.
void GroupRun::finish_reduction(const Step& step) {
  dtype_ = type_of(step.to[0]);
  std::byte* target = buffers_.values;
  for (const Operand& operand : step.to) {
    if (operand.place != Place::local || operand.packets || is_rounded(operand)) continue;
    const Values values = locate(operand, state_.comm.rank());
    if (values.elems < elems_) continue;
    target = values.start;
    break;
  }
  finish(dtype_, final_op(step), state_.comm.ranks(), buffers_.accumulator, elems_, target);
  values_ = target;
  payload_ = {};
}

// Decodes the message if necessary: to `target` if it has room, else to the group's own buffer.
ncast_status GroupRun::need_values(std::byte* target, uint64_t capacity_elems) {
  if (values_ != nullptr || elems_ == 0) return NCAST_OK;
  std::byte* const values = capacity_elems >= elems_ ? target : buffers_.values;
  if (ncast_status status = decode(encoding(payload_codec_), payload_, elems_, payload_rank_, values)) return status;
  values_ = values;
  return NCAST_OK;
}

// --- destinations

// Values keep the place that they have in the user's buffers, as in the calls of GPUs.
device::BlockContext GroupRun::context_of(const Step& step) const {
  device::BlockContext context = host::context_of(state_.comm, state_.tag, part_.first);
  for (const auto* const operands : {&step.from, &step.to}) {
    for (const Operand& operand : *operands) {
      if (operand.place != Place::local || operand.buffer == plan::Buffer::scratch) continue;
      context.first_elem += state_.first_elem_of(chunk_of(operand), batch_);
      context.stage = step.kind == StepKind::reduce ? 1 : 0;
      return context;
    }
  }
  // Values that are only passed on, which no step of this group has in the user's buffers.
  context.first_elem += batch_ * state_.part_elems;
  context.stage = 2 + index_;
  return context;
}

ncast_status GroupRun::store_all(const Step& step) {
  for (const Operand& operand : step.to) {
    if (is_message(operand)) continue;
    if (operand.place != Place::everywhere) {
      if (ncast_status status = store(operand, rank_of(operand))) return status;
      continue;
    }
    for (const int rank : state_.plan->channels[operand.channel].ranks) {
      if (ncast_status status = store(operand, rank)) return status;
    }
  }
  return NCAST_OK;
}

ncast_status GroupRun::store(const Operand& operand, int rank) {
  const Values target = locate(operand, rank);
  const uint64_t elems = std::min(elems_, target.elems);
  const uint64_t raw_bytes = elems * value_bytes();
  uint64_t wire_bytes = raw_bytes;
  if (holds_frame(operand)) {
    if (ncast_status status = store_packets(operand, rank, &wire_bytes)) return status;
  } else if (elems != 0) {
    if (is_rounded(operand)) {
      if (ncast_status status = need_values(buffers_.values, elems_)) return status;
      if (ncast_status status = encode_frame(operand.codec)) return status;
      const Payload frame = {buffers_.frame, frame_bytes_};
      if (values_ == target.start) {
        // The other destinations receive the values as they are now.
        std::memcpy(buffers_.values, values_, elems_ * state_.value_bytes);
        values_ = buffers_.values;
      }
      std::byte* const decoded = elems == elems_ ? target.start : buffers_.rounded;
      if (ncast_status status = decode(encoding(operand.codec), frame, elems_, state_.comm.rank(), decoded)) {
        return status;
      }
      if (decoded != target.start) std::memcpy(target.start, decoded, raw_bytes);
      wire_bytes = frame_bytes_;
    } else {
      if (ncast_status status = need_values(target.start, target.elems)) return status;
      if (values_ != target.start) std::memmove(target.start, values_, raw_bytes);
    }
  }
  const bool is_own = rank == state_.comm.rank();
  if (operand.packets) {
    flag_of(operand, rank).store(flag_value(), std::memory_order_release);
    if (state_.facts.reads_remote_packets)
      state_.comm.world->wake_peers();
    else if (!is_own)
      state_.comm.world->bell_of(rank).notify();
  }
  if (!is_own) state_.comm.count_sent(state_.tag.operation, raw_bytes, wire_bytes);
  return NCAST_OK;
}

// A message with the same codec is stored as it is, unless it has to be divided. This also keeps the bits of a bounded
// codec.
ncast_status GroupRun::store_packets(const Operand& operand, int rank, uint64_t* wire_bytes) {
  const uint64_t frames = packet_frames(locate(operand, rank).elems);
  const bool is_message = frames == 1 && payload_.bytes != nullptr && payload_codec_ == operand.codec;
  if (!is_message && elems_ != 0) {
    if (ncast_status status = need_values(buffers_.values, elems_)) return status;
  }
  *wire_bytes = 0;
  for (uint64_t i = 0; i < frames; ++i) {
    PacketHeader* const packets = packets_of(operand, rank, i);
    const uint64_t first = std::min(elems_, i * state_.packet_frame_elems);
    packets->elems = std::min(elems_ - first, state_.packet_frame_elems);
    if (packets->elems == 0) {
      packets->frame_bytes = 0;
    } else if (is_message) {
      packets->frame_bytes = payload_.count;
      std::memcpy(packets + 1, payload_.bytes, payload_.count);
    } else if (frames == 1) {
      if (ncast_status status = encode_frame(operand.codec)) return status;
      packets->frame_bytes = frame_bytes_;
      std::memcpy(packets + 1, buffers_.frame, frame_bytes_);
    } else {
      size_t bytes = 0;
      device::BlockContext context = context_;
      context.first_elem += first;
      if (ncast_status status = encode(encoding(operand.codec), context, values_ + first * state_.value_bytes,
                                       packets->elems, packets + 1, state_.memory.packet_capacity_bytes(), &bytes))
        return status;
      packets->frame_bytes = bytes;
    }
    *wire_bytes += packets->frame_bytes;
  }
  return NCAST_OK;
}

ncast_status GroupRun::send_messages(const Step& step, bool* all_sent) {
  bool all = true;
  for (size_t i = 0; i < step.to.size(); ++i) {
    const Operand& operand = step.to[i];
    if (!is_message(operand) || is_sent_[i] != 0) continue;
    const channel::Slot slot = state_.memory.sender(operand.channel).next_free();
    if (!slot) {
      all = block_on(state_.plan->channels[operand.channel].to);
      continue;
    }
    const bool is_only_one = std::ranges::count_if(step.to, is_coded) == 1;
    if (ncast_status status = send_message(operand, slot, is_only_one)) return status;
    is_sent_[i] = 1;
  }
  *all_sent = all;
  return NCAST_OK;
}

// is_only_one: no other destination of the step is encoded.
ncast_status GroupRun::send_message(const Operand& operand, const channel::Slot& slot, bool is_only_one) {
  channel::RingSender& ring = state_.memory.sender(operand.channel);
  size_t payload_bytes = 0;
  if (payload_.bytes != nullptr && payload_codec_ == operand.codec) {
    // Forward the message as it is. This also keeps the bits of a bounded codec.
    payload_bytes = payload_.count;
    std::memcpy(slot.payload, payload_.bytes, payload_bytes);
  } else if (elems_ != 0) {
    if (ncast_status status = need_values(buffers_.values, elems_)) return status;
    if (operand.codec == NCAST_CODEC_RAW) {
      payload_bytes = elems_ * value_bytes();
      std::memcpy(slot.payload, values_, payload_bytes);
    } else if (is_only_one) {
      if (ncast_status status = encode(encoding(operand.codec), context_, values_, elems_, slot.payload,
                                       ring.payload_capacity_bytes(), &payload_bytes)) {
        return status;
      }
    } else {
      if (ncast_status status = encode_frame(operand.codec)) return status;
      payload_bytes = frame_bytes_;
      std::memcpy(slot.payload, buffers_.frame, payload_bytes);
    }
  }
  CallTag tag = state_.tag;
  tag.position = state_.sent[operand.channel]++;
  tag.chunk_elems = elems_;
  put(state_.comm, state_.plan->channels[operand.channel].to, ring, slot, tag, value_bytes(), payload_bytes);
  return NCAST_OK;
}

// Encodes the values into buffers_.frame once for all destinations with the same codec.
ncast_status GroupRun::encode_frame(ncast_codec codec) {
  if (frame_bytes_ != 0 && frame_codec_ == codec) return NCAST_OK;
  frame_codec_ = codec;
  return encode(encoding(codec), context_, values_, elems_, buffers_.frame, state_.memory.frame_bytes(), &frame_bytes_);
}

}  // namespace narrowcast::executor::host
