#include "executor/cuda/blocks/pieces.h"

#include <algorithm>
#include <array>
#include <bit>

namespace narrowcast::executor::cuda {
namespace {

// A piece of a reduction: every ring of the call works on every piece.
Piece whole(const void* values, uint64_t bytes) {
  return {const_cast<char*>(static_cast<const char*>(values)), bytes, 0, 0};
}

const char* at(const void* buffer, uint64_t bytes) {
  return buffer == nullptr ? nullptr : static_cast<const char*>(buffer) + bytes;
}

// Every rank but the root receives one piece from the root, and the other pieces from the ranks that relay them.
void cut_relayed_broadcast(const Call& call, const Rings& rings, BlockCall* moves) {
  const int rank = moves->peers.rank, root = call.peer;
  const uint64_t bytes = call.count * ncast_dtype_bytes(call.dtype);
  const RankPieces pieces(call.operation, bytes, moves->peers.ranks, root, rings.block_bytes());
  moves->in_order = true;  // all pieces concurrently, so that all receivers begin to relay
  moves->first_forward_ring = rings.most_rings();
  for (int peer = 0; peer < moves->peers.ranks; ++peer) {
    if (peer == root) continue;
    const bool is_own = peer == rank;
    const auto cut = [&](const void* buffer) {
      return rings.piece(at(buffer, pieces.first(peer)), pieces.bytes(peer));
    };
    if (rank == root) {
      moves->send[peer] = cut(call.send);
    } else {
      moves->recv[is_own ? root : peer] = cut(call.recv);
      if (!is_own) moves->forward |= 1u << peer;
    }
  }
  if (rank != root) moves->relayed = 1u << root;
}

}  // namespace

Piece Rings::piece(const void* values, uint64_t bytes) const {
  const uint32_t rings = rings_of(bytes, block_bytes(), most_rings());
  return {const_cast<char*>(static_cast<const char*>(values)), bytes, rings,
          slots_of(bytes, block_bytes(), rings, slots_, over_host_)};
}

Turns Rings::turns(uint64_t bytes, bool gathers) const {
  const uint32_t rings = shape_.rings;
  if (rings == 0) return {};
  const uint64_t turn_bytes = uint64_t{rings} * block_bytes();
  // Rings that also carry results use all slots: their ends wait for each other twice in a turn.
  const uint32_t slots = gathers ? slots_ : slots_of(bytes, block_bytes(), rings, slots_, over_host_);
  return {rings, slots, static_cast<uint32_t>((bytes + turn_bytes - 1) / turn_bytes)};
}

Grid Rings::grid(const BlockCall& call, uint32_t kernels) const {
  const auto grid_of = [&](uint32_t ctas) -> Grid {
    return {ctas, cluster_size(ctas, shape_.clustered), shape_.warps, shape_.memory_bytes};
  };
  if (call.turns.rings != 0) return grid_of(shape_.ctas);
  std::array<uint32_t, channel::max_gpu_ranks> sent = {};
  uint32_t received = 0;
  for (int peer = 0; peer < call.peers.ranks; ++peer) {
    sent[static_cast<size_t>(peer)] = call.send[peer].rings;
    received += call.recv[peer].rings;
  }
  return grid_of(ctas_of_kernel(shape_, {sent, received, call.local_copy.bytes, call.is_point_to_point}, kernels));
}

void cut_moves(const Call& call, const Rings& rings, BlockCall* moves) {
  const int rank = moves->peers.rank, ranks = moves->peers.ranks;
  const size_t value_bytes = ncast_dtype_bytes(call.dtype);
  const uint64_t bytes = call.count * value_bytes;
  const bool is_root = rank == call.peer;
  LocalCopy& own = moves->local_copy;
  moves->values = static_cast<const char*>(call.send);
  const bool relays = rings.relays();
  if (relays) cut_relayed_broadcast(call, rings, moves);
  for (int peer = 0; peer < ranks; ++peer) {
    const auto index = static_cast<uint64_t>(peer);
    const bool from_root = peer == call.peer;
    Piece send = {}, recv = {};
    switch (call.operation) {
      case Operation::all_gather:
        send = rings.piece(call.send, bytes);
        recv = rings.piece(at(call.recv, index * bytes), bytes);
        break;
      case Operation::all_to_all:
        send = rings.piece(at(call.send, index * bytes), bytes);
        recv = rings.piece(at(call.recv, index * bytes), bytes);
        break;
      case Operation::all_to_all_v: {
        const PeerCounts::Range& out = call.peer_counts->send[index];
        const PeerCounts::Range& in = call.peer_counts->recv[index];
        send = rings.piece(at(call.send, out.first * value_bytes), out.elems * value_bytes);
        recv = rings.piece(at(call.recv, in.first * value_bytes), in.elems * value_bytes);
        break;
      }
      case Operation::broadcast:  // to a single peer, or the local copy of the root
        if (is_root) send = rings.piece(call.send, bytes);
        if (from_root) recv = rings.piece(call.recv, bytes);
        break;
      case Operation::scatter:
        if (is_root) send = rings.piece(at(call.send, index * bytes), bytes);
        if (from_root) recv = rings.piece(call.recv, bytes);
        break;
      default:  // gather
        if (from_root) send = rings.piece(call.send, bytes);
        if (is_root) recv = rings.piece(at(call.recv, index * bytes), bytes);
    }
    if (peer == rank) {
      own = {send.values, recv.values, std::min(send.bytes, recv.bytes)};
    } else if (!relays) {
      moves->send[peer] = send;
      moves->recv[peer] = recv;
    }
  }
  const bool is_kept = keeps_decoded(call.operation, moves->codec) && own.from != nullptr;
  if (is_kept) moves->kept = own.to;
  if (is_kept || own.from == own.to || own.from == nullptr || own.to == nullptr) own.bytes = 0;
  if (sends_together(call.operation, moves->codec)) moves->sent_together = ((1u << ranks) - 1) & ~(1u << rank);
}

void cut_reduction(const Call& call, const Rings& rings, BlockCall* reduction) {
  const int rank = reduction->peers.rank, ranks = reduction->peers.ranks;
  const uint64_t bytes = call.count * ncast_dtype_bytes(call.dtype);
  const bool scatters = call.operation == Operation::reduce_scatter;
  const bool gathers = call.operation == Operation::all_reduce;
  const bool to_root = rings.relays();
  reduction->op = call.redop;
  reduction->values = static_cast<const char*>(call.send);
  const RankPieces pieces(call.operation, bytes, ranks, call.peer, rings.block_bytes());
  const bool receives = gathers || (to_root && rank == call.peer);
  uint64_t largest = 0;
  for (int peer = 0; peer < ranks; ++peer) {
    const uint64_t first = scatters ? static_cast<uint64_t>(peer) * bytes : pieces.first(peer);
    const uint64_t piece_bytes = scatters ? bytes : pieces.bytes(peer);
    const Piece values = whole(at(call.send, first), piece_bytes);
    largest = std::max(largest, piece_bytes);
    if (peer == rank) {
      reduction->own = values;
      reduction->reduced = whole(scatters ? call.recv : receives ? at(call.recv, first) : nullptr, piece_bytes);
    } else {
      reduction->send[peer] = values;
      if (receives) reduction->recv[peer] = whole(at(call.recv, first), piece_bytes);
      if (gathers || (to_root && peer == call.peer)) reduction->forward |= 1u << peer;
    }
  }
  // `largest` is the same on all ranks, so the turns are too.
  reduction->turns = rings.turns(largest, gathers || to_root);
  reduction->gathers = receives;
}

bool assigns_blocks(const BlockCall& call, uint32_t block_bytes) {
  return !call.in_order && std::ranges::any_of(call.send, [&](const Piece& piece) {
    return piece.bytes > uint64_t{piece.rings} * block_bytes;
  });
}

uint64_t sent_bytes(const BlockCall& call) {
  uint64_t bytes = 0, passed_on = call.reduced.bytes;
  for (int peer = 0; peer < call.peers.ranks; ++peer) {
    bytes += call.send[peer].bytes;
    if ((call.relayed >> peer & 1) != 0) passed_on = call.recv[peer].bytes;
  }
  return bytes + passed_on * static_cast<uint64_t>(std::popcount(call.forward));
}

}  // namespace narrowcast::executor::cuda
