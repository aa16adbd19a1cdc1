// What a warp of a block kernel does that reduces: it takes the block of one rank after the other, and passes the result on.
#pragma once

#include "collective/cuda/block_roles.cuh"
#include "collective/cuda/reduce_block.cuh"

namespace narrowcast::collective::cuda {

// Is a + b the same as b + a, to the bit? Of equals MIN and MAX keep the first, which may be -0 or +0.
__device__ inline bool commutes(ncast_redop op) { return op != NCAST_MIN && op != NCAST_MAX; }

// The warp is the `number`th of those that reduce, and has that lane of every peer.
template <typename Coding, ncast_dtype Dtype, int Buffers>
__device__ void reduce_blocks(const BlockCall& call, RoleMemory<Coding, Buffers>& memory, SignalQueue& signals,
                              uint32_t number, int thread) {
  static_assert(Buffers >= 3);
  if (number >= call.own.lanes) return;
  const int rank = call.peers.rank, ranks = call.peers.ranks;
  const End from = thread < ranks && thread != rank ? End{thread, number, call.own.slots} : End{-1, 0, 0};
  const bool passes_on = (call.forward >> thread & 1) != 0;
  const End to_next = passes_on ? End{thread, call.first_forward_lane + number, call.own.slots} : End{-1, 0, 0};
  ValueLoader loader(&memory.barrier, thread);
  channel::SlotReceiver receiver(call.peers, call.layout, from, Coding::block_bytes, thread);
  channel::SlotSender sender(call.peers, call.layout, to_next, Coding::block_bytes, signals, thread);
  BlockSums<Dtype, Coding::block_bytes> sums;
  // This rank's values and then the result; a payload; its values, and the result's payload.
  char *const own_values = memory.buffers[0], *const payload = memory.buffers[1], *const coded = memory.buffers[2];
  // In the order of the ranks, but for the first two where that is the same: this rank's own values are there last.
  const auto source_of = [&](int turn) { return rank == 0 && turn < 2 && commutes(call.op) ? 1 - turn : turn; };
  // The next source that is not this rank, from a turn on; its payload is brought while something else is done.
  const auto peer_from = [&](int turn) { return turn < ranks && source_of(turn) == rank ? turn + 1 : turn; };
  const auto start = [&](int turn, bool wait) {
    const int source = source_of(turn);
    return start_payload<Coding>(call, call.own, source, wait ? receiver.wait(source) : receiver.poll(source), payload,
                                 thread);
  };
  unsigned long long wire_bytes = 0;
  uint32_t block = number;
  BlockOf own = block_of<Coding::block_bytes>(call.own, block);
  loader.start(own_values, own.values, own.bytes);
  Arriving arriving;
  while (own.bytes != 0) {
    const uint32_t this_block = block, raw_bytes = own.bytes;
    block += call.own.lanes;
    const BlockOf next = block_of<Coding::block_bytes>(call.own, block);
    // The values of the source of that turn.
    const auto term_of = [&](int turn) -> const char* {
      if (source_of(turn) == rank) {
        loader.wait();
        return own_values;
      }
      if (arriving.bytes == 0) arriving = start(turn, true);
      if (arriving.bytes == 0) return nullptr;
      wait_for_payload();
      receiver.release(arriving.end);
      const char* values = payload;
      bool fits = arriving.block.values == own.values;
      if (fits && !is_raw<Coding>(arriving)) {
        fits = Coding::decode(payload, arriving.bytes, coded, memory.scratch, thread);
        __syncwarp();  // all lanes have decoded
        values = coded;
      }
      if (fits) return values;
      report_corrupt(call.peers, arriving.end, thread);
      return nullptr;
    };
    // What comes after that turn, once all lanes have read its payload.
    const auto start_after = [&](int turn) {
      __syncwarp();
      if (source_of(turn) == rank) return;
      const int later = peer_from(turn + 1);
      arriving.bytes = 0;
      if (later < ranks) {
        arriving = start(later, false);
      } else if (next.bytes != 0) {
        arriving = start(peer_from(0), false);
      }
    };

    const char* term = term_of(0);
    if (term == nullptr) return;
    sums.set(term, thread);
    start_after(0);
    for (int turn = 1; turn < ranks; ++turn) {
      term = term_of(turn);
      if (term == nullptr) return;
      sums.reduce(call.op, term, thread);
      start_after(turn);
    }
    sums.finish(call.op, ranks, own_values, thread);
    __syncwarp();
    char* const to =
        call.reduced.values == nullptr ? nullptr : call.reduced.values + uint64_t{this_block} * Coding::block_bytes;
    if (to != nullptr) store_values(to, own_values, raw_bytes, thread);
    if (to == nullptr || !is_bulk(to, raw_bytes)) device::order_stores_before_bulk_copies();
    if (call.forward != 0) {
      uint32_t bytes = static_cast<uint32_t>(format::aligned(raw_bytes));
      if (raw_bytes == Coding::block_bytes) bytes = Coding::encode(own_values, coded, memory.scratch, thread);
      const bool raw = bytes == Coding::block_bytes || raw_bytes != Coding::block_bytes;
      if (!sender.reserve(call.forward)) return;
      sender.put(call.forward, raw ? own_values : coded, bytes, this_block, next.bytes == 0);
      wire_bytes += bytes * __popc(call.forward);
    }
    own = next;
    device::wait_for_store_sources(thread);
    if (own.bytes != 0) loader.start(own_values, own.values, own.bytes);
  }
  device::wait_for_stores(thread);
  receiver.close();
  sender.close();
  if (thread == 0 && wire_bytes != 0) atomicAdd(call.wire_bytes, wire_bytes);
}

}  // namespace narrowcast::collective::cuda
