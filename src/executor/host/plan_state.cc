#include "executor/host/plan_state.h"

#include <bit>

#include "executor/host/reduction.h"

namespace narrowcast::executor::host {

using plan::Buffer;

void PlanState::begin(const Call& call, const CallTag& call_tag) {
  tag = call_tag;
  dtype = call.dtype;
  value_bytes = ncast_dtype_bytes(dtype);
  partial_dtype = accumulator_type(dtype);
  redop = call.redop;
  input = static_cast<std::byte*>(const_cast<void*>(call.send));
  output = static_cast<std::byte*>(call.recv);
  count = call.count;
  // Sizes of values are powers of two. Short calls avoid divisions.
  if (call.factor) {
    const bool is_root = comm.rank() == call.peer;
    const auto ranks = static_cast<uint64_t>(comm.ranks());
    const uint64_t elems = count * operation::pieces(operation::describe(call.operation).send, ranks, is_root);
    scaled.resize(elems * value_bytes);
    scale(dtype, *call.factor, call.send, elems, scaled.data());
    input = scaled.data();
  }
  const int value_shift = std::countr_zero(value_bytes);
  const uint64_t aligned_elems = uint64_t{16} >> value_shift;
  chunk_elems = plan->chunks == 1 ? count : (count + plan->chunks - 1) / plan->chunks;
  chunk_elems = (chunk_elems + aligned_elems - 1) & ~(aligned_elems - 1);
  part_elems = memory.part_bytes() >> (facts.reduces ? std::countr_zero(accumulator_bytes(dtype)) : value_shift);
  packet_frame_elems =
      facts.encoded_packets.frame_bytes == 0 ? part_elems : facts.encoded_packets.frame_bytes >> value_shift;
  // A call without values runs its steps once, so that the ranks compare their calls.
  batches = chunk_elems <= part_elems ? 1 : (chunk_elems + part_elems - 1) / part_elems;
  const auto& barriers = rank_plan().barriers;
  arrivals.resize(barriers.size());
  for (size_t i = 0; i < barriers.size(); ++i) arrivals[i].assign(barriers[i].size(), 0);
}

uint64_t PlanState::elems_of(Buffer buffer, uint32_t chunk, uint64_t batch) const {
  uint64_t elems = chunk_elems;
  if (buffer != Buffer::scratch) {
    const uint32_t in_piece = plan->chunks == 1 ? 0 : chunk % plan->chunks;
    const uint64_t first = std::min(count, in_piece * chunk_elems);
    elems = std::min(count - first, chunk_elems);
  }
  return std::min(elems - std::min(elems, batch * part_elems), part_elems);
}

uint64_t PlanState::first_elem_of(uint32_t chunk, uint64_t batch) const {
  const uint64_t piece = plan->chunks == 1 ? chunk : chunk / plan->chunks;
  const uint64_t in_piece = chunk - piece * plan->chunks;
  return piece * count + std::min(count, in_piece * chunk_elems + batch * part_elems);
}

std::byte* PlanState::in_user_memory(Buffer buffer, uint32_t chunk, uint64_t batch) const {
  std::byte* const start = buffer == Buffer::input ? input : output;
  return start == nullptr ? nullptr : start + first_elem_of(chunk, batch) * value_bytes;
}

Values PlanState::locate(int rank, Buffer buffer, uint32_t chunk, const Part& part, size_t bytes) const {
  const uint64_t elems = elems_of(buffer, chunk, part.batch);
  const uint64_t first = std::min(part.first, elems);
  std::byte* const start = buffer == Buffer::scratch || facts.exposes(buffer)
                               ? memory.part(rank, buffer, chunk, copy_of(part.batch))
                               : in_user_memory(buffer, chunk, part.batch);
  return {start == nullptr ? nullptr : start + first * bytes, std::min(elems - first, part.elems)};
}

}  // namespace narrowcast::executor::host
