// The roles of the warps in kernels that move values: send blocks, receive them, relay them, copy the local part.
#pragma once

#include "channel/memory/direct_write.cuh"
#include "executor/cuda/blocks/warp.cuh"

namespace narrowcast::executor::cuda {

struct NoState {};
template <typename Codec>
using MovingMemory = WarpMemory<Codec, NoState>;

__device__ inline void swap(char*& a, char*& b) {
  char* const old_a = a;
  a = b;
  b = old_a;
}

// The end that this thread of warp `number` holds; `warps` warps have the same role. The ends of a warp are in its
// first threads. The rings of all pieces, except those in the bit mask `without`, are numbered piece after piece and
// assigned to the warps in turn. The first piece is that of the next rank, or with `descending` of the previous rank,
// so every rank starts with a different peer.
__device__ inline End assigned_end(const Piece* pieces, uint32_t without, const channel::Peers& peers, bool descending,
                                   uint32_t number, uint32_t warps, int thread) {
  uint32_t ring = number + thread * warps;
  for (int step = 1; step < peers.ranks; ++step) {
    const int next = peers.rank + (descending ? peers.ranks - step : step);
    const int peer = next < peers.ranks ? next : next - peers.ranks;
    if (pieces[peer].bytes == 0 || (without >> peer & 1) != 0) continue;
    if (ring < pieces[peer].rings) return {peer, ring, pieces[peer].slots};
    ring -= pieces[peer].rings;
  }
  return {-1, 0, 0};
}
// The rings of a warp in the piece for a peer (-1: none): the first, and every `step`th after it.
struct WarpRings {
  int peer;
  uint32_t first, step;
};
// The rings of warp `number` of `warps` in a point-to-point call. A warp serves one peer only, so a peer that has not
// started its receive does not delay the messages to others.
__device__ inline WarpRings point_to_point_rings(const Piece* pieces, const channel::Peers& peers, uint32_t number,
                                                 uint32_t warps) {
  // Short: the warp loads nothing before it.
  const auto peer_after = [&](int step) {
    const int next = peers.rank + step;
    return next < peers.ranks ? next : next - peers.ranks;
  };
  uint32_t rings = 0, count = 0;
#pragma unroll 1
  for (int step = 1; step < peers.ranks; ++step) {
    const Piece& piece = pieces[peer_after(step)];
    if (piece.bytes == 0) continue;
    rings += piece.rings;
    ++count;
  }
#pragma unroll 1
  for (int step = 1; step < peers.ranks; ++step) {
    const int peer = peer_after(step);
    if (pieces[peer].bytes == 0) continue;
    const uint32_t piece_warps = warps_of_piece(pieces[peer].rings, rings, count, warps);
    if (number < piece_warps) return {peer, number, piece_warps};
    number -= piece_warps;
  }
  return {-1, 0, 0};
}
__device__ inline End end_of(WarpRings shared, const Piece* pieces, int thread) {
  const uint32_t ring = shared.first + thread * shared.step;
  return shared.peer >= 0 && ring < pieces[shared.peer].rings ? End{shared.peer, ring, pieces[shared.peer].slots}
                                                              : End{-1, 0, 0};
}

// The ends of one ring number in the pieces for all peers. Thread 0 has that of the next rank.
__device__ inline End end_of_ring(const Piece* pieces, const channel::Peers& peers, uint32_t ring, int thread) {
  const int next = peers.rank + 1 + thread, peer = next < peers.ranks ? next : next - peers.ranks;
  const bool holds = thread < peers.ranks - 1 && ring < pieces[peer].rings;
  return holds ? End{peer, ring, pieces[peer].slots} : End{-1, 0, 0};
}

// Bit mask of the threads that hold an end.
__device__ inline EndMask ends_of(End end) { return __ballot_sync(device::all_lanes, end.peer >= 0); }
__device__ inline int peer_of_thread(End end, int thread) { return __shfl_sync(device::all_lanes, end.peer, thread); }

// A block to send, its end and its peer. 0 bytes: there is no block.
struct Outgoing {
  int end, peer;
  uint32_t block;
  BlockSpan span;
};

// The role of warp `number` of `warps` senders. If call.in_order, block b goes to ring b % rings and the warp serves
// its rings in turn, as relaying receivers require. Otherwise the warp serves one ring after the other, and each ring
// gets the next unassigned block of its piece, so slow rings get fewer blocks. If the pieces are sent together, the
// warp serves one ring of each peer and encodes a block once for all.
template <typename Codec>
__device__ void send_blocks(const BlockCall& call, MovingMemory<Codec>& memory, SignalQueue& signals, uint32_t number,
                            uint32_t warps, int thread) {
  const bool in_order = call.in_order;
  const bool together = !Codec::is_exact && call.sent_together != 0;
  const End end = together ? end_of_ring(call.send, call.peers, number, thread)
                  : call.is_point_to_point
                      ? end_of(point_to_point_rings(call.send, call.peers, number, warps), call.send, thread)
                      : assigned_end(call.send, 0, call.peers, false, number, warps, thread);
  EndMask open = ends_of(end);  // ends with blocks left to send
  if (open == 0) return;
  uint32_t turn = 0;
  // The block for an end in this turn.
  const auto block_to = [&](int to) -> Outgoing {
    const int peer = peer_of_thread(end, to);
    const uint32_t block = turn * call.send[peer].rings + __shfl_sync(device::all_lanes, end.ring, to);
    return {to, peer, block, block_of<Codec::values_bytes>(call.send[peer], block)};
  };
  // The block that was assigned to thread 0. The atomic is in flight until the value is used.
  uint32_t assigned = 0;
  const auto request_block = [&](int peer) {
    if (call.assigns_blocks && thread == 0) assigned = atomicAdd(&call.block_counters->assigned[peer], 1u);
  };

  ValueLoader loader(&memory.barrier, thread);
  channel::DirectEnds direct;
  char *buffer = memory.buffers[0], *next_buffer = memory.buffers[1];  // values of this block and the next
  char* const payload = memory.buffers[2];
  const bool keeps = !Codec::is_exact && call.kept != nullptr;
  const uint32_t calls = earlier_calls<Codec>(call);
  uint32_t wire_vectors = 0;  // of 16 bytes
  Outgoing current = block_to(0);
  loader.start(buffer, current.span.values, current.span.bytes);
  auto sender_end = channel::SenderEnd::of(call.peers, call.layout, end, Codec::values_bytes, !call.is_point_to_point);
  channel::SlotSender sender(call.peers, call.layout, end, sender_end, Codec::values_bytes, signals, thread);
  // Short calls take as long as the latencies of these loads together, so none waits for another:
  // - The values take longest and come first; the addresses of the others need many instructions.
  // - If every ring has one block, no other one is requested.
  // - end.peer is current.peer, which ptxas knows to be the same in all threads. It would make the addition one of the
  //   whole warp and wait for the result here.
  // - ptxas tests the stop word as early as it can. If it were loaded first, the atomic would wait for it.
  request_block(end.peer);
  if (channel::is_stopped(channel::stop_word(call.peers))) return loader.wait();
  if (Codec::is_identity && call.inviting_peers != 0 &&
      !direct.begin(call.peers, call.layout, call.direct_writes, end, call.inviting_peers, call.announced.to))
    return;
  while (true) {
    const uint32_t before = in_order ? current.block : __shfl_sync(device::all_lanes, assigned, 0);
    Outgoing next{current.end, current.peer, before + call.send[current.peer].rings, {}};
    next.span = block_of<Codec::values_bytes>(call.send[current.peer], next.block);
    const bool last = next.span.bytes == 0;  // the last block of its ring
    const EndMask to = together ? open : 1u << current.end;
    if (last) open &= ~to;
    if (open != 0 && (last || in_order)) {
      const EndMask others = open & ~((2u << current.end) - 1);
      if (others == 0) ++turn;
      next = block_to(__ffs(others != 0 ? others : open) - 1);
    }
    if (next.span.bytes != 0) request_block(next.peer);
    loader.wait();
    if (keeps) {  // the last block may be stored from next_buffer
      device::wait_for_store_sources(thread);
      device::order_stores_before_bulk_copies();
    }
    if (next.span.bytes != 0) loader.start(next_buffer, next.span.values, next.span.bytes);

    const uint32_t raw_bytes = current.span.bytes;
    const char* const values = call.is_point_to_point ? call.send[current.peer].values : call.values;
    const device::BlockContext context = context_of<Codec>(call, calls, current.span.values, values, 0);
    const bool is_encoded = (call.encoded >> current.peer & 1) != 0;
    const PayloadSize size =
        is_encoded ? encode<Codec>(memory.parameters, context, buffer, raw_bytes, payload, memory.scratch, thread)
                   : raw_payload(raw_bytes);
    const bool direct_end = Codec::is_identity && (direct.mask() & to) != 0;
    if ((last || !direct_end) && !sender.reserve(to)) return;
    if (direct_end) {
      direct.write(to, uint64_t{current.block} * Codec::values_bytes, buffer, raw_bytes, thread);
      if (last) sender.raise(to, SlotFlag::written(), current.block, last);
    } else {
      // Long pieces, which use all slots, gain from delayed flags. Encoded values do not.
      const bool delays_flag =
          Codec::is_identity && !last && call.send[current.peer].slots == channel::ChannelLayout::max_slots;
      sender.put(to, size.is_coded() ? payload : buffer, size, current.block, last, delays_flag);
    }
    if (keeps) {
      if (size.is_coded())
        device::decode_block<Codec>(memory.parameters, payload, size.bytes(), buffer, memory.scratch, thread);
      __syncwarp();
      store_values(call.kept + (current.span.values - call.values), buffer, raw_bytes, thread);
    }
    wire_vectors += size.bytes() / format::alignment * __popc(to);
    if (next.span.bytes == 0) break;
    current = next;
    swap(buffer, next_buffer);
  }
  if (keeps) device::wait_for_store_sources(thread);
  sender.close();
  if (thread == 0 && wire_vectors != 0)
    atomicAdd(&call.byte_counters->wire_bytes, uint64_t{wire_vectors} * format::alignment);
}

// Each of the `warps` senders of all CTAs calls this when it ends. The last one marks the invitations of this call as
// received.
template <typename Codec>
__device__ void end_sender(const BlockCall& call, uint32_t warps, int thread) {
  if (!end_warp<Codec>(call, warps, call.assigns_blocks || call.inviting_peers != 0, thread)) return;
  for (int peer = 0; peer < call.peers.ranks; ++peer)
    if ((call.inviting_peers >> peer & 1) != 0) ++call.direct_writes->invitations_received[peer];
}

// One warp of the kernel calls this.
__device__ inline void invite_peers(const BlockCall& call, uint32_t stopped, int thread) {
  if ((call.invited_peers >> thread & 1) != 0)
    channel::invite(call.peers, call.layout, *call.direct_writes, thread, call.places[thread],
                    call.announced.from[thread], stopped);
}

// A payload that is being loaded from a slot into shared memory.
struct Arriving {
  PayloadSize size{};  // initially none
  int end;
  bool last;  // the last payload of its end
  uint32_t number;
  BlockSpan block;  // destination of the values; NULL if the sender wrote them directly
};

// Starts to load a payload from rank `source` into `buffer`. Its block belongs to `piece`.
template <typename Codec>
__device__ Arriving start_payload(const BlockCall& call, const device::Parameters<Codec>& parameters,
                                  const Piece& piece, int source, const channel::SlotReceiver::Payload& payload,
                                  char* buffer, int thread) {
  const PayloadSize size = payload.flag.payload();
  const uint32_t number = payload.flag.block();
  Arriving arriving{size, payload.end, payload.flag.last(), number, block_of<Codec::values_bytes>(piece, number)};
  if (!size) return arriving;
  if (Codec::is_identity && size == SlotFlag::written() && call.places[source].region != 0) {
    arriving.block = {nullptr, 0};
    return arriving;
  }
  const uint32_t raw_bytes = arriving.block.bytes;
  if (!is_valid_payload<Codec>(parameters, size, raw_bytes)) {
    report_corrupt(call.peers, source, thread);
    arriving.size = {};
    return arriving;
  }
  start_loading_payload(buffer, payload.data, size.bytes(), thread);
  return arriving;
}

// The warp receives the payloads of its ends, which are in its first threads, and stores the values. Before it stores
// a payload it calls relay(payload, arrived), which returns false if the communicator is stopped.
template <typename Codec, typename Relay>
__device__ void receive_payloads(const BlockCall& call, MovingMemory<Codec>& memory, End end, int thread, Relay relay) {
  EndMask open = ends_of(end);  // ends with payloads left to receive
  if (open == 0) return;
  const uint32_t stopped = channel::stop_word(call.peers);
  auto receiver_end = channel::ReceiverEnd::of(call.peers, call.layout, end);
  channel::SlotReceiver receiver(call.peers, call.layout, end, receiver_end, Codec::values_bytes, thread);
  // Buffers of a payload, of the payload after it, and of the decoded values of the first.
  char *buffer = memory.buffers[0], *next_buffer = memory.buffers[1], *values = memory.buffers[2];
  if (channel::is_stopped(stopped)) return;
  const auto start = [&](char* to, int first, bool wait) {
    const channel::SlotReceiver::Payload payload = receiver.next(open, first, wait);
    const int source = peer_of_thread(end, payload.end);
    return start_payload<Codec>(call, memory.parameters, call.recv[source], source, payload, to, thread);
  };
  Arriving arriving;
  while (open != 0) {
    if (!arriving.size) arriving = start(buffer, 0, true);
    if (!arriving.size) return;
    const Arriving payload = arriving;
    wait_for_payload();
    receiver.release(payload.end);
    device::wait_for_store_sources(thread);  // the last block may be stored from either buffer
    if (payload.last) open &= ~(1u << payload.end);
    arriving.size = {};
    if (open != 0) arriving = start(next_buffer, (payload.end + 1) % 32, false);
    if (!relay(buffer, payload)) return;
    if (payload.block.values == nullptr) {
      // The sender wrote the values of this ring directly to their destination.
    } else if (Codec::is_identity || !payload.size.is_coded()) {
      store_values(payload.block.values, buffer, payload.block.bytes, thread);
      swap(buffer, values);
    } else if (device::decode_block<Codec>(memory.parameters, buffer, payload.size.bytes(), values, memory.scratch,
                                           thread)) {
      store_values(payload.block.values, values, payload.block.bytes, thread);
    } else {
      return report_corrupt(call.peers, peer_of_thread(end, payload.end), thread);
    }
    swap(buffer, next_buffer);
  }
  device::wait_for_store_sources(thread);
  receiver.close();
}

// The role of warp `number` of `warps` receivers.
template <typename Codec>
__device__ void receive_blocks(const BlockCall& call, MovingMemory<Codec>& memory, uint32_t number, uint32_t warps,
                               int thread) {
  End end = assigned_end(call.recv, call.relayed, call.peers, true, number, warps, thread);
  end.ring += call.first_forward_ring;
  receive_payloads<Codec>(call, memory, end, thread, [](const char*, const Arriving&) { return true; });
}

__host__ __device__ inline bool is_aligned(const LocalCopy& copy) {
  return (reinterpret_cast<uintptr_t>(copy.from) | reinterpret_cast<uintptr_t>(copy.to)) % 16 == 0;
}

// The role of warp `number` of `warps` that copy the local part.
__device__ inline void copy_local_blocks(const LocalCopy& copy, uint32_t number, uint32_t warps, int thread) {
  constexpr uint32_t vectors = 16, bytes = vectors * 32 * sizeof(uint4);
  const bool aligned = is_aligned(copy);
  for (uint64_t at = uint64_t{number} * bytes; at < copy.bytes; at += uint64_t{warps} * bytes) {
    const uint64_t left = copy.bytes - at;
    if (!aligned || left < bytes) {
      device::copy_bytes<4>(copy.to + at, copy.from + at, static_cast<uint32_t>(min(left, uint64_t{bytes})), thread);
      continue;
    }
    // Issue all loads before the first store.
    uint4 block[vectors];
#pragma unroll
    for (uint32_t i = 0; i < vectors; ++i) block[i] = reinterpret_cast<const uint4*>(copy.from + at)[i * 32 + thread];
#pragma unroll
    for (uint32_t i = 0; i < vectors; ++i) reinterpret_cast<uint4*>(copy.to + at)[i * 32 + thread] = block[i];
  }
}

// The role of warp `number` of `warps` that relay payloads as they are received.
template <typename Codec>
__device__ void relay_blocks(const BlockCall& call, MovingMemory<Codec>& memory, SignalQueue& signals, uint32_t number,
                             uint32_t warps, int thread) {
  const End end = assigned_end(call.recv, ~call.relayed, call.peers, true, number, warps, thread);
  const bool relays = (call.forward >> thread & 1) != 0 && number < call.recv[__ffs(call.relayed) - 1].rings;
  const uint32_t slots = call.recv[__ffs(call.relayed) - 1].slots;
  const End to = relays ? End{thread, call.first_forward_ring + number, slots} : End{-1, 0, 0};
  auto sender_end = channel::SenderEnd::of(call.peers, call.layout, to, Codec::values_bytes, false);
  sender_end.forget_division();  // a relay has no register in which to keep the number of slots until the end
  channel::SlotSender sender(call.peers, call.layout, to, sender_end, Codec::values_bytes, signals, thread);
  unsigned long long wire_bytes = 0;
  receive_payloads<Codec>(call, memory, end, thread, [&](const char* payload, const Arriving& arrived) {
    wire_bytes += arrived.size.bytes() * __popc(call.forward);
    if (call.forward == 0) return true;
    if (!sender.reserve(call.forward)) return false;
    sender.put(call.forward, payload, arrived.size, arrived.number, arrived.last);
    return true;
  });
  sender.close(false);
  if (thread == 0 && wire_bytes != 0) atomicAdd(&call.byte_counters->wire_bytes, wire_bytes);
}

}  // namespace narrowcast::executor::cuda
