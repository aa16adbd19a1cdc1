#include "executor/cuda/blocks/pieces.h"

#include <algorithm>
#include <bit>
#include <span>

#include "select/block_split.h"

namespace narrowcast::executor::cuda {
namespace {

// The piece of a reduction, all of whose rings go through all pieces.
Piece whole(const void* values, uint64_t bytes) {
  return {const_cast<char*>(static_cast<const char*>(values)), bytes, 0, 0};
}

const char* at(const void* buffer, uint64_t bytes) {
  return buffer == nullptr ? nullptr : static_cast<const char*>(buffer) + bytes;
}

// Have so many warps room for the ends of all pieces that are sent, if none has those of two?
bool are_dealt(const BlockCall& call, uint32_t all_rings, uint32_t warps) {
  const std::span pieces(call.send, static_cast<size_t>(call.peers.ranks));
  const auto count =
      static_cast<uint32_t>(std::ranges::count_if(pieces, [](const Piece& piece) { return piece.bytes != 0; }));
  return count <= warps && std::ranges::all_of(pieces, [&](const Piece& piece) {
           return piece.bytes == 0 || piece.rings <= 32 * warps_of_piece(piece.rings, all_rings, count, warps);
         });
}

// A vector cut into a piece for each rank but `without` (-1: for each), in the order of ranks.
class RankPieces {
 public:
  RankPieces(uint64_t bytes, int ranks, int without, uint32_t block_bytes)
      : pieces_(bytes, without < 0 ? ranks : ranks - 1, block_bytes), without_(without) {}
  uint64_t first(int rank) const { return pieces_.first(number(rank)); }
  uint64_t bytes(int rank) const { return rank == without_ ? 0 : pieces_.bytes(number(rank)); }

 private:
  int number(int rank) const { return without_ >= 0 && rank > without_ ? rank - 1 : rank; }

  BlockPieces pieces_;
  int without_;
};

// Every rank but the root gets a piece from it, and the others from those that have them.
void cut_relayed_broadcast(const Call& call, const Rings& rings, uint32_t block_bytes, BlockCall* moves) {
  const int rank = moves->peers.rank, root = call.peer;
  const uint64_t bytes = call.count * ncast_dtype_bytes(call.dtype);
  const RankPieces pieces(bytes, moves->peers.ranks, root, block_bytes);
  moves->in_order = true;  // all pieces at the same time: their receivers begin to pass them on
  moves->first_forward_ring = rings.most();
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

Rings::Rings(const Call& call, ncast_dtype dtype, ncast_codec codec, const channel::ChannelLayout& layout,
             uint32_t max_ctas)
    : block_bytes_(block_bytes(dtype, codec)),
      slots_(layout.slots_of(block_bytes_)),
      agreed_ctas_(max_ctas),
      max_ctas_(block_ctas(call.operation, codec, call.count * ncast_dtype_bytes(call.dtype), max_ctas)),
      warps_(piece_warps(call.operation, dtype, codec)) {}

Piece Rings::piece(const void* values, uint64_t bytes) const {
  const uint32_t rings = rings_of(bytes, block_bytes_, most());
  return {const_cast<char*>(static_cast<const char*>(values)), bytes, rings,
          slots_of(bytes, block_bytes_, rings, slots_)};
}

Turns Rings::turns(uint64_t bytes, bool gathers) const {
  const uint32_t rings = rings_in_step(bytes, block_bytes_, most());
  if (rings == 0) return {};
  const uint64_t of_turn = uint64_t{rings} * block_bytes_;
  // Rings that carry results as well are longer, and both ends wait for each other twice a turn.
  const uint32_t slots = gathers ? slots_ : slots_of(bytes, block_bytes_, rings, slots_);
  return {rings, slots, static_cast<uint32_t>((bytes + of_turn - 1) / of_turn)};
}

uint32_t Rings::ctas(const BlockCall& call, uint32_t kernels) const {
  if (call.turns.rings != 0) return ctas_of(call.turns.rings, max_ctas_);
  const auto kept = static_cast<uint32_t>(std::min<uint64_t>(call.own_copy.bytes / block_bytes_, max_ctas_));
  uint32_t sent = 0, received = 0;
  for (int peer = 0; peer < call.peers.ranks; ++peer) {
    sent += call.send[peer].rings;
    received += call.recv[peer].rings;
  }
  const uint32_t ends = 32 * warps_;  // of a CTA's warps in one role: one a thread
  const uint32_t most = std::min(max_ctas_, std::max(agreed_ctas_ / kernels, 1u));
  uint32_t ctas = std::max(ctas_of(std::max({sent, received, kept, call.own.rings, 1u}), most),
                           (std::max(sent, received) + ends - 1) / ends);
  while (call.announced.of_messages && !are_dealt(call, sent, ctas * warps_)) ++ctas;
  return ctas;
}

void cut_moves(const Call& call, ncast_codec codec, const Rings& rings, BlockCall* moves) {
  const int rank = moves->peers.rank, ranks = moves->peers.ranks;
  const size_t value_bytes = ncast_dtype_bytes(call.dtype);
  const uint64_t bytes = call.count * value_bytes;
  const bool is_root = rank == call.peer;
  OwnCopy& own = moves->own_copy;
  const bool relays = call.operation == Operation::broadcast && ranks > 2;
  if (relays) cut_relayed_broadcast(call, rings, block_bytes(call.dtype, codec), moves);
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
      case Operation::broadcast:  // to one other rank, or what the root keeps
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
  if (own.from == own.to || own.from == nullptr || own.to == nullptr) own.bytes = 0;
}

void cut_reduction(const Call& call, ncast_codec codec, const Rings& rings, BlockCall* reduction) {
  const int rank = reduction->peers.rank, ranks = reduction->peers.ranks;
  const uint64_t bytes = call.count * ncast_dtype_bytes(call.dtype);
  const bool scatters = call.operation == Operation::reduce_scatter;
  const bool gathers = call.operation == Operation::all_reduce;
  const bool to_root = call.operation == Operation::reduce;
  reduction->op = call.redop;
  const int without = to_root && !root_reduces(ranks) ? call.peer : -1;
  const RankPieces pieces(bytes, ranks, without, block_bytes(call.dtype, codec));
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
  // Alike on all ranks.
  reduction->turns = rings.turns(largest, gathers || to_root);
  reduction->gathers = receives;
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
