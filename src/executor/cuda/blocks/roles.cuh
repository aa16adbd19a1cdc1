// The roles of the warps of a block kernel that moves values: send blocks, receive them, pass them on.
#pragma once

#include "channel/memory/direct_write.cuh"
#include "executor/cuda/blocks/kernels.h"
#include "executor/cuda/blocks/warp.cuh"

namespace narrowcast::executor::cuda {

__device__ inline void swap(char*& a, char*& b) {
  char* const was_a = a;
  a = b;
  b = was_a;
}

// The end that this thread of a role's `number`th warp of `warps` holds; those of a warp are its first threads'. Rings
// of all pieces but those `without`, as bits, one piece after the other, are dealt to the warps in turn. Pieces begin
// with that of the next rank, or with `backwards` that of the one before: at first every rank sends to another one, and
// receives from it.
__device__ inline End dealt_end(const Piece* pieces, uint32_t without, const channel::Peers& peers, bool backwards,
                                uint32_t number, uint32_t warps, int thread) {
  uint32_t ring = number + thread * warps;
  for (int step = 1; step < peers.ranks; ++step) {
    const int next = peers.rank + (backwards ? peers.ranks - step : step);
    const int peer = next < peers.ranks ? next : next - peers.ranks;
    if (pieces[peer].bytes == 0 || (without >> peer & 1) != 0) continue;
    if (ring < pieces[peer].rings) return {peer, ring, pieces[peer].slots};
    ring -= pieces[peer].rings;
  }
  return {-1, 0, 0};
}
// A warp's rings of the piece that goes to a peer (-1: none): the first, and every `step`th after it.
struct SharedRings {
  int peer;
  uint32_t first, step;
};
// Of the `number`th of `warps` that send messages. Each is for one peer alone: one whose receiver is not there yet does
// not keep what others wait for.
__device__ inline SharedRings rings_of_messages(const Piece* pieces, const channel::Peers& peers, uint32_t number,
                                                uint32_t warps) {
  uint32_t rings = 0, count = 0;
  for (int peer = 0; peer < peers.ranks; ++peer) {
    if (pieces[peer].bytes == 0) continue;
    rings += pieces[peer].rings;
    ++count;
  }
  for (int step = 1; step < peers.ranks; ++step) {
    const int peer = (peers.rank + step) % peers.ranks;
    if (pieces[peer].bytes == 0) continue;
    const uint32_t of_piece = warps_of_piece(pieces[peer].rings, rings, count, warps);
    if (number < of_piece) return {peer, number, of_piece};
    number -= of_piece;
  }
  return {-1, 0, 0};
}
__device__ inline End end_of(SharedRings shared, const Piece* pieces, int thread) {
  const uint32_t ring = shared.first + thread * shared.step;
  return shared.peer >= 0 && ring < pieces[shared.peer].rings ? End{shared.peer, ring, pieces[shared.peer].slots}
                                                              : End{-1, 0, 0};
}

// The threads that hold an end, as bits.
__device__ inline EndMask ends_of(End end) { return __ballot_sync(device::all_lanes, end.peer >= 0); }
__device__ inline int peer_of_thread(End end, int thread) { return __shfl_sync(device::all_lanes, end.peer, thread); }

// Of a bounded codec: decodes the payload of a block into `here`, where its values were, and stores that where the call
// keeps it. Afterwards `here` may be written again.
template <typename Codec>
__device__ void keep_decoded(const BlockCall& call, const BlockOf& block, PayloadSize size, const char* payload,
                             char* here, typename Codec::Scratch& scratch, int thread) {
  if (call.kept.to == nullptr) return;
  char* const to = call.kept.to + (block.values - call.kept.from);
  if (size.is_coded()) {
    __syncwarp();  // all lanes have read the payload and `here`
    device::decode_block<Codec>(call.codec, payload, size.bytes(), here, scratch, thread);
    __syncwarp();
  } else if (to == block.values) {
    return;
  }
  store_values(to, here, block.bytes, thread);
  device::order_stores_before_bulk_copies();
  device::wait_for_store_sources(thread);
}

// The block that a sender handles next, and the end that it goes to. 0 bytes: there is none.
struct Outgoing {
  int at, peer;
  uint32_t block;
  BlockOf values;
};

// The warp is the `number`th of `warps` senders. In order, block b goes to ring b % rings, and the warp's rings take
// turns, as those need it that pass blocks on; else one ring comes after the other, and takes what is next, so that
// slow ones take less.
template <typename Codec>
__device__ void send_blocks(const BlockCall& call, WarpMemory<Codec>& memory, SignalQueue& signals, uint32_t number,
                            uint32_t warps, int thread) {
  const bool in_order = call.in_order;
  const End end = call.of_messages ? end_of(rings_of_messages(call.send, call.peers, number, warps), call.send, thread)
                                   : dealt_end(call.send, 0, call.peers, false, number, warps, thread);
  EndMask open = ends_of(end);  // that get more
  if (open == 0) return;
  uint32_t turn = 0;
  // The block of this turn that goes to an end.
  const auto block_to = [&](int at) -> Outgoing {
    const int peer = peer_of_thread(end, at);
    const uint32_t block = turn * call.send[peer].rings + __shfl_sync(device::all_lanes, end.ring, at);
    return {at, peer, block, block_of<Codec::values_bytes>(call.send[peer], block)};
  };
  // Of which piece thread 0 has asked for a block; the answer is on its way until it is used.
  uint32_t claimed = 0;
  const auto claim_after = [&](const Outgoing& of) {
    if (!in_order && thread == 0) claimed = atomicAdd(&call.claims->taken[of.peer], 1u);
  };

  const uint32_t stopped = channel::stop_word(call.peers);
  ValueLoader loader(&memory.barrier, thread);
  auto sender_end = channel::SenderEnd::of(call.peers, call.layout, end);
  channel::SlotSender sender(call.peers, call.layout, end, sender_end, Codec::values_bytes, signals, thread);
  channel::StraightEnds straight;
  char *here = memory.buffers[0], *later = memory.buffers[1];  // the values of this block and of the next
  char* const payload = memory.buffers[2];
  unsigned long long wire_bytes = 0;
  Outgoing now = block_to(0);
  loader.start(here, now.values.values, now.values.bytes);
  claim_after(now);
  if (channel::is_stopped(stopped)) return loader.wait();
  if (Codec::is_identity &&
      !straight.begin(call.peers, call.layout, call.straight, end, call.awaits, call.announced.to))
    return;
  while (true) {
    const uint32_t before = in_order ? now.block : __shfl_sync(device::all_lanes, claimed, 0);
    Outgoing next{now.at, now.peer, before + call.send[now.peer].rings, {}};
    next.values = block_of<Codec::values_bytes>(call.send[now.peer], next.block);
    const bool last = next.values.bytes == 0;  // of its ring
    const EndMask to = 1u << now.at;
    if (last) open &= ~to;
    if (open != 0 && (last || in_order)) {
      const EndMask others = open & ~((2u << now.at) - 1);
      if (others == 0) ++turn;
      next = block_to(__ffs(others != 0 ? others : open) - 1);
    }
    if (next.values.bytes != 0) claim_after(next);
    loader.wait();
    if (next.values.bytes != 0) loader.start(later, next.values.values, next.values.bytes);

    const uint32_t raw_bytes = now.values.bytes;
    const PayloadSize size = encode<Codec>(call.codec, here, raw_bytes, payload, memory.scratch, thread);
    const bool invited = Codec::is_identity && (straight.mask() & to) != 0;
    if ((last || !invited) && !sender.reserve(to)) return;
    if (invited) {
      straight.write(to, uint64_t{now.block} * Codec::values_bytes, here, raw_bytes, thread);
      if (last) sender.raise(to, SlotFlag::written(), now.block, last);
    } else {
      // In long pieces, which are the ones that use all slots; coded ones gain nothing by it.
      const bool holds = Codec::is_identity && !last && call.send[now.peer].slots == channel::ChannelLayout::most_slots;
      sender.put(to, size.is_coded() ? payload : here, size, now.block, last, holds);
    }
    if constexpr (!Codec::is_exact) {
      // Other blocks are on their way to shared memory: this one is sent once, so nobody reads its values again.
      keep_decoded<Codec>(call, now.values, size, payload, here, memory.scratch, thread);
    }
    wire_bytes += size.bytes();
    if (next.values.bytes == 0) break;
    now = next;
    swap(here, later);
  }
  sender.close();
  if (thread == 0 && wire_bytes != 0) atomicAdd(&call.sent->wire_bytes, wire_bytes);
}

// The warp is the `number`th of `warps` senders of a bounded codec in an all-gather. It encodes each block of its rings
// once, for all peers, because the values may be overwritten by what the payload decodes to.
template <typename Codec>
__device__ void share_blocks(const BlockCall& call, WarpMemory<Codec>& memory, SignalQueue& signals, uint32_t number,
                             uint32_t warps, int thread) {
  const channel::Peers& peers = call.peers;
  const EndMask to = ((1u << peers.ranks) - 1) & ~(1u << peers.rank);
  const Piece& piece = call.send[(peers.rank + 1) % peers.ranks];
  const uint32_t stopped = channel::stop_word(peers);
  ValueLoader loader(&memory.barrier, thread);
  char *here = memory.buffers[0], *later = memory.buffers[1];  // the values of this block and of the next
  char* const payload = memory.buffers[2];
  unsigned long long wire_bytes = 0;
  uint32_t pushed = 0;
  for (uint32_t ring = number; ring < piece.rings; ring += warps) {
    const End end = (to >> thread & 1) != 0 ? End{thread, ring, piece.slots} : End{-1, 0, 0};
    auto sender_end = channel::SenderEnd::of(peers, call.layout, end);
    channel::SlotSender sender(peers, call.layout, end, sender_end, Codec::values_bytes, signals, thread, pushed);
    BlockOf now = block_of<Codec::values_bytes>(piece, ring);
    loader.start(here, now.values, now.bytes);
    if (channel::is_stopped(stopped)) return loader.wait();
    for (uint32_t block = ring; now.bytes != 0; block += piece.rings) {
      const BlockOf next = block_of<Codec::values_bytes>(piece, block + piece.rings);
      loader.wait();
      if (next.bytes != 0) loader.start(later, next.values, next.bytes);
      const PayloadSize size = encode<Codec>(call.codec, here, now.bytes, payload, memory.scratch, thread);
      if (!sender.reserve(to)) {
        if (next.bytes != 0) loader.wait();
        return;
      }
      sender.put(to, size.is_coded() ? payload : here, size, block, next.bytes == 0);
      keep_decoded<Codec>(call, now, size, payload, here, memory.scratch, thread);
      wire_bytes += size.bytes() * (peers.ranks - 1);
      now = next;
      swap(here, later);
    }
    sender.close();
    pushed = sender.signals();
  }
  if (thread == 0 && wire_bytes != 0) atomicAdd(&call.sent->wire_bytes, wire_bytes);
}

// Each of the `warps` senders of all CTAs when it ends: the last one leaves the claims as they were, and has answered
// all invitations.
__device__ inline void end_claims(const BlockCall& call, uint32_t warps, int thread) {
  if (thread != 0) return;
  __threadfence();
  if (atomicAdd(&call.claims->ended, 1u) + 1 != warps) return;
  *call.claims = {};
  for (int peer = 0; peer < call.peers.ranks; ++peer)
    if ((call.awaits >> peer & 1) != 0) ++call.straight->received[peer];
}

// One warp of the kernel.
__device__ inline void invite_senders(const BlockCall& call, uint32_t stopped, int thread) {
  if ((call.invites >> thread & 1) != 0)
    channel::invite(call.peers, call.layout, *call.straight, thread, call.places[thread], call.announced.from[thread],
                    stopped);
}

// A payload on its way from a slot to shared memory.
struct Arriving {
  PayloadSize size{};  // none at first
  int end;
  bool last;  // of its end
  uint32_t number;
  BlockOf block;  // where its values go; none if they are there already
};

// Starts to bring a payload from `source`, whose block belongs to `piece`, to `here`.
template <typename Codec>
__device__ Arriving start_payload(const BlockCall& call, const Piece& piece, int source,
                                  const channel::SlotReceiver::Payload& payload, char* here, int thread) {
  const PayloadSize size = payload.flag.payload();
  const uint32_t number = payload.flag.block();
  Arriving arriving{size, payload.end, payload.flag.last(), number, block_of<Codec::values_bytes>(piece, number)};
  if (!size) return arriving;
  if (Codec::is_identity && size == SlotFlag::written() && call.places[source].region != 0) {
    arriving.block = {nullptr, 0};
    return arriving;
  }
  const uint32_t raw_bytes = arriving.block.bytes;
  if (!can_be_of<Codec>(call.codec, size, raw_bytes)) {
    report_corrupt(call.peers, source, thread);
    arriving.size = {};
    return arriving;
  }
  start_loading_payload(here, payload.data, size.bytes(), thread);
  return arriving;
}

// A warp takes the payloads of its thread's ends, which are its first threads', and puts the values where they go.
// Before that each is passed on: pass_on(payload, arrived), which returns false if the communicator is stopped.
template <typename Codec, typename PassOn>
__device__ void take_payloads(const BlockCall& call, WarpMemory<Codec>& memory, End end, int thread, PassOn pass_on) {
  EndMask open = ends_of(end);  // ends that get more
  if (open == 0) return;
  const uint32_t stopped = channel::stop_word(call.peers);
  auto receiver_end = channel::ReceiverEnd::of(call.peers, call.layout, end);
  channel::SlotReceiver receiver(call.peers, call.layout, end, receiver_end, Codec::values_bytes, thread);
  // A payload, the one after it, and the values of the first.
  char *here = memory.buffers[0], *next = memory.buffers[1], *values = memory.buffers[2];
  if (channel::is_stopped(stopped)) return;
  const auto start = [&](char* to, int first, bool wait) {
    const channel::SlotReceiver::Payload payload = receiver.next(open, first, wait);
    const int source = peer_of_thread(end, payload.end);
    return start_payload<Codec>(call, call.recv[source], source, payload, to, thread);
  };
  Arriving arriving;
  while (open != 0) {
    if (!arriving.size) arriving = start(here, 0, true);
    if (!arriving.size) return;
    const Arriving payload = arriving;
    wait_for_payload();
    receiver.release(payload.end);
    device::wait_for_store_sources(thread);  // of the last block: its buffer may be either
    if (payload.last) open &= ~(1u << payload.end);
    arriving.size = {};
    if (open != 0) arriving = start(next, (payload.end + 1) % 32, false);
    if (!pass_on(here, payload)) return;
    if (payload.block.values == nullptr) {
      // The sender has put the ring's values where they end up.
    } else if (Codec::is_identity || !payload.size.is_coded()) {
      store_values(payload.block.values, here, payload.block.bytes, thread);
      swap(here, values);
    } else if (device::decode_block<Codec>(call.codec, here, payload.size.bytes(), values, memory.scratch, thread)) {
      store_values(payload.block.values, values, payload.block.bytes, thread);
    } else {
      return report_corrupt(call.peers, peer_of_thread(end, payload.end), thread);
    }
    swap(here, next);
  }
  device::wait_for_store_sources(thread);
  receiver.close();
}

// The warp is the `number`th of `warps` receivers.
template <typename Codec>
__device__ void receive_blocks(const BlockCall& call, WarpMemory<Codec>& memory, uint32_t number, uint32_t warps,
                               int thread) {
  End end = dealt_end(call.recv, call.relayed, call.peers, true, number, warps, thread);
  end.ring += call.first_forward_ring;
  take_payloads<Codec>(call, memory, end, thread, [](const char*, const Arriving&) { return true; });
}

// The warp is the `number`th of `warps` that copy what stays on the rank.
__device__ inline void copy_own_blocks(const OwnCopy& own, uint32_t number, uint32_t warps, int thread) {
  constexpr uint32_t vectors = 16, bytes = vectors * 32 * sizeof(uint4);
  const bool aligned = is_aligned(own);
  for (uint64_t at = uint64_t{number} * bytes; at < own.bytes; at += uint64_t{warps} * bytes) {
    const uint64_t left = own.bytes - at;
    if (!aligned || left < bytes) {
      device::copy_bytes<4>(own.to + at, own.from + at, static_cast<uint32_t>(min(left, uint64_t{bytes})), thread);
      continue;
    }
    // All loads are under way before the first store.
    uint4 block[vectors];
#pragma unroll
    for (uint32_t i = 0; i < vectors; ++i) block[i] = reinterpret_cast<const uint4*>(own.from + at)[i * 32 + thread];
#pragma unroll
    for (uint32_t i = 0; i < vectors; ++i) reinterpret_cast<uint4*>(own.to + at)[i * 32 + thread] = block[i];
  }
}

// The warp is the `number`th of `warps` that pass on what comes, as it comes.
template <typename Codec>
__device__ void relay_blocks(const BlockCall& call, WarpMemory<Codec>& memory, SignalQueue& signals, uint32_t number,
                             uint32_t warps, int thread) {
  const End end = dealt_end(call.recv, ~call.relayed, call.peers, true, number, warps, thread);
  const bool passes_on = (call.forward >> thread & 1) != 0 && number < call.recv[__ffs(call.relayed) - 1].rings;
  const uint32_t slots = call.recv[__ffs(call.relayed) - 1].slots;
  const End to = passes_on ? End{thread, call.first_forward_ring + number, slots} : End{-1, 0, 0};
  auto sender_end = channel::SenderEnd::of(call.peers, call.layout, to);
  channel::SlotSender sender(call.peers, call.layout, to, sender_end, Codec::values_bytes, signals, thread);
  unsigned long long wire_bytes = 0;
  take_payloads<Codec>(call, memory, end, thread, [&](const char* payload, const Arriving& arrived) {
    wire_bytes += arrived.size.bytes() * __popc(call.forward);
    if (call.forward == 0) return true;
    if (!sender.reserve(call.forward)) return false;
    sender.put(call.forward, payload, arrived.size, arrived.number, arrived.last);
    return true;
  });
  sender.close();
  if (thread == 0 && wire_bytes != 0) atomicAdd(&call.sent->wire_bytes, wire_bytes);
}

}  // namespace narrowcast::executor::cuda
