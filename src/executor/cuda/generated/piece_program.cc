#include "executor/cuda/generated/piece_program.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>
#include <vector>

#include "codec/codec.h"

namespace narrowcast::executor::cuda::generated {
namespace {

// The pieces of one rank.
class Finder {
 public:
  Finder(const Program& program, int rank) : program_(program), rank_(rank) {}

  // Items are in an order in which they can be executed.
  bool find(const std::vector<const Item*>& items) {
    return std::ranges::all_of(items, [&](const Item* item) {
      return item->kind == Item::Kind::reduce ? add_reduction(*item) : add_copy(*item);
    });
  }
  const RankChunks& pieces() const { return pieces_; }
  bool reduces() const { return pieces_.own.has_value(); }

 private:
  static bool is_value(const Place& place, plan::Buffer buffer) {
    return place.kind == Place::Kind::local && place.buffer == buffer && !place.packets;
  }
  static bool is_sent(const Place& place) { return place.kind == Place::Kind::message; }
  bool is_message(const Place& place) const {
    return is_sent(place) && place.coded == (program_.codec != NCAST_CODEC_RAW);
  }
  const Message& message(const Place& place) const { return program_.messages[place.message]; }
  uint32_t chunk(const Place& place) const { return program_.chunk_of(place).word; }
  // Sets a chunk that must not have been set.
  static bool set(RankChunks::Chunk& to, uint32_t chunk) {
    if (to.has_value()) return false;
    to = chunk;
    return true;
  }

  bool add_copy(const Item& item) {
    if (item.kind != Item::Kind::copy) return false;
    const Place& from = item.from[0];
    if (is_message(from))
      return item.to.size() == 1 && is_value(item.to[0], plan::Buffer::output) &&
             set(pieces_.recv[static_cast<size_t>(message(from).from)], chunk(item.to[0]));
    if (!is_value(from, plan::Buffer::input)) return false;
    return std::ranges::all_of(item.to, [&](const Place& to) {
      if (is_message(to)) return set(pieces_.send[static_cast<size_t>(message(to).to)], chunk(from));
      pieces_.copied_from = chunk(from);
      return is_value(to, plan::Buffer::output) && !to.rounded && set(pieces_.copied, chunk(to));
    });
  }

  // Every rank's values in rank order; the first two may be swapped, which does not change the sum.
  bool add_reduction(const Item& item) {
    const auto ranks = static_cast<size_t>(program_.rank_count());
    if (item.from.size() != ranks) return false;
    std::vector<int> sources;
    for (const Place& from : item.from) {
      if (is_message(from)) {
        sources.push_back(message(from).from);
      } else if (is_value(from, plan::Buffer::input) && set(pieces_.own, chunk(from))) {
        sources.push_back(rank_);
      } else {
        return false;
      }
    }
    if (sources[0] == 1) std::swap(sources[0], sources[1]);
    for (size_t i = 0; i < ranks; ++i)
      if (sources[i] != static_cast<int>(i)) return false;
    // These kernels store the result as the other ranks get it, if they get it.
    const bool is_rounded = !codec::is_exact(program_.codec) && std::ranges::any_of(item.to, &Finder::is_sent);
    return std::ranges::all_of(item.to, [&](const Place& to) {
      if (is_value(to, plan::Buffer::output)) return to.rounded == is_rounded && set(pieces_.reduced, chunk(to));
      if (!is_message(to)) return false;
      const uint32_t bit = 1u << message(to).to;
      const bool is_new = (pieces_.forward & bit) == 0;
      pieces_.forward |= bit;
      return is_new;
    });
  }

  const Program& program_;
  int rank_;
  RankChunks pieces_;
};

// The kernels of the operations need no order between groups: they write no memory that is still read. Moves for which
// that is not so are found by may_overwrite().
bool orders_groups(const Item& item) { return item.kind == Item::Kind::publish || item.kind == Item::Kind::await; }

// Whether both or neither are chunks, and of one size: it depends on the number of the chunk in its piece.
bool are_alike(const RankChunks::Chunk& a, const RankChunks::Chunk& b) {
  if (!a || !b) return !a && !b;
  return ChunkRef{*a}.chunk() == ChunkRef{*b}.chunk();
}

// What a rank sends to another is what that one expects.
bool is_received(const RankChunks& from, const RankChunks& to, int from_rank, int to_rank, bool reduces) {
  const RankChunks::Chunk& sent = from.send[static_cast<size_t>(to_rank)];
  const RankChunks::Chunk& received = to.recv[static_cast<size_t>(from_rank)];
  if (!reduces) return are_alike(sent, received);
  const bool has_result = (from.forward >> to_rank & 1) != 0;
  return are_alike(sent, to.own) && (has_result ? are_alike(from.own, received) : !received.has_value());
}

// Whether some chunk is sent to several peers, and another one to others.
bool sends_a_chunk_to_some(const RankChunks& rank) {
  std::set<uint32_t> sent;
  const bool repeats = std::ranges::any_of(
      rank.send, [&](const RankChunks::Chunk& chunk) { return chunk && !sent.insert(*chunk).second; });
  return repeats && rank.sent_together() == 0;
}

// Whether some part of the memory that receiving warps write may be what other warps still read: input and output may
// be the same memory.
bool may_overwrite(const Program& program, const RankChunks& pieces, int rank) {
  if (program.in_place == plan::InPlace::no) return false;
  const operation::Description& row = operation::describe(program.operation);
  const auto ranks = static_cast<uint64_t>(program.rank_count());
  const uint64_t inputs = operation::pieces(row.send, ranks, true), outputs = operation::pieces(row.recv, ranks, true);
  // In place, the smaller buffer is the rank's part of the larger one.
  const auto place = [&](uint32_t chunk, uint64_t own_pieces, uint64_t other_pieces) {
    const ChunkRef ref{chunk};
    const uint32_t first = own_pieces < other_pieces ? static_cast<uint32_t>(rank) : 0;
    return std::pair{first + ref.piece(), ref.chunk()};
  };
  const auto is_written = [&](const RankChunks::Chunk& read) {
    const auto overwrites = [&](const RankChunks::Chunk& written) {
      return read && written && place(*read, inputs, outputs) == place(*written, outputs, inputs);
    };
    return std::ranges::any_of(pieces.recv, overwrites);
  };
  return std::ranges::any_of(pieces.send, is_written) || is_written(pieces.copied_from);
}

}  // namespace

uint32_t RankChunks::sent_together() const {
  uint32_t mask = 0;
  Chunk chunk;
  for (size_t peer = 0; peer < send.size(); ++peer) {
    if (!send[peer]) continue;
    if (mask != 0 && send[peer] != chunk) return 0;
    chunk = send[peer];
    mask |= 1u << peer;
  }
  return std::has_single_bit(mask) ? 0 : mask;
}

std::optional<PieceProgram> find_pieces(const Program& program) {
  if (program.accesses_peers || program.in_place == plan::InPlace::yes || program.rank_count() < 2) return {};
  PieceProgram found;
  found.reduces = program.reduces;
  for (int rank = 0; rank < program.rank_count(); ++rank) {
    const RankProgram& of_rank = program.ranks[static_cast<size_t>(rank)];
    std::vector<const Item*> items;
    for (const GroupProgram& group : of_rank.groups)
      for (const Item& item : group.items)
        if (!orders_groups(item)) items.push_back(&item);
    Finder finder(program, rank);
    if (!finder.find(items) || finder.reduces() != found.reduces) return {};
    if (found.reduces ? finder.pieces().copied.has_value() : may_overwrite(program, finder.pieces(), rank)) return {};
    found.ranks.push_back(finder.pieces());
  }
  // These kernels encode a piece for each peer or once for all, and the former is slower in reductions.
  const bool is_coded = program.codec != NCAST_CODEC_RAW;
  if (found.reduces && is_coded && std::ranges::any_of(found.ranks, sends_a_chunk_to_some)) return {};
  for (int from = 0; from < program.rank_count(); ++from)
    for (int to = 0; to < program.rank_count(); ++to)
      if (from != to && !is_received(found.ranks[static_cast<size_t>(from)], found.ranks[static_cast<size_t>(to)], from,
                                     to, found.reduces))
        return {};
  return found;
}

}  // namespace narrowcast::executor::cuda::generated
