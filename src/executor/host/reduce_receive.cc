#include "executor/host/reduce_receive.h"

#include "executor/host/reduction.h"

namespace narrowcast::executor::host {

uint64_t reduced_chunk_elems(Communicator& comm, ncast_dtype dtype) {
  return comm.staging.chunk_bytes() / accumulator_bytes(dtype);
}

ReduceReceive::ReduceReceive(Communicator& comm, const CallTag& tag, const void* own, void* result, uint64_t elems)
    : comm_(comm),
      tag_(tag),
      dtype_(static_cast<ncast_dtype>(tag.dtype)),
      op_(static_cast<ncast_redop>(tag.redop)),
      own_(static_cast<const std::byte*>(own)),
      result_(static_cast<std::byte*>(result)),
      chunks_(elems, reduced_chunk_elems(comm, dtype_)) {}

ncast_status ReduceReceive::advance(bool* progressed) {
  if (turn_ == comm_.rank()) {
    accumulate_values(own_ + chunks_.first() * ncast_dtype_bytes(dtype_));
  } else {
    ReceivedChunk chunk;
    if (ncast_status status = next_chunk(comm_, turn_, tag_, chunks_, &chunk)) return status;
    if (chunk.payload == nullptr) return NCAST_OK;
    if (ncast_status status = accumulate_payload(chunk)) return status;
    comm_.world->from(turn_).release();
  }
  *progressed = true;
  if (++turn_ == comm_.ranks()) finish_chunk();
  return NCAST_OK;
}

ncast_status ReduceReceive::accumulate_payload(const ReceivedChunk& chunk) {
  const uint64_t raw_bytes = chunks_.elems() * ncast_dtype_bytes(dtype_);
  // Reduce bare values directly from the slot.
  if (codec_of(tag_) == NCAST_CODEC_RAW && chunk.payload_bytes == raw_bytes) {
    accumulate_values(chunk.payload);
    return NCAST_OK;
  }
  std::byte* values = comm_.staging.values();
  if (ncast_status status = decode_chunk(chunk, tag_, chunks_.elems(), turn_, values)) return status;
  accumulate_values(values);
  return NCAST_OK;
}

void ReduceReceive::accumulate_values(const void* values) {
  std::byte* accumulator = comm_.staging.accumulator();
  if (turn_ == 0) {
    accumulate_first(dtype_, values, chunks_.elems(), accumulator);
  } else {
    accumulate(dtype_, op_, values, chunks_.elems(), accumulator);
  }
}

void ReduceReceive::finish_chunk() {
  finish(dtype_, op_, comm_.ranks(), comm_.staging.accumulator(), chunks_.elems(),
         result_ + chunks_.first() * ncast_dtype_bytes(dtype_));
  chunks_.next();
  turn_ = 0;
}

}  // namespace narrowcast::executor::host
