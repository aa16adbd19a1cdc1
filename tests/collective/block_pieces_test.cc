// Do the ranks agree on what goes where?
#include "collective/cuda/block_pieces.h"

#include <algorithm>
#include <random>
#include <vector>

#include "collective/cuda/choice.h"
#include "doctest/doctest.h"

namespace narrowcast::collective::cuda {
namespace {

constexpr Operation all_operations[] = {Operation::broadcast,  Operation::reduce,        Operation::gather,
                                        Operation::scatter,    Operation::all_gather,    Operation::all_to_all,
                                        Operation::all_reduce, Operation::reduce_scatter};

// Where the buffers begin; nothing is read.
char* const send_begin = reinterpret_cast<char*>(uintptr_t{1} << 40);
char* const recv_begin = reinterpret_cast<char*>(uintptr_t{2} << 40);

std::vector<BlockCall> cut(const Call& call, ncast_codec codec, int ranks, uint32_t max_ctas) {
  std::vector<BlockCall> all(static_cast<size_t>(ranks));
  const channel::ChannelLayout layout(0, ranks, lanes_of_ctas(max_ctas), SIZE_MAX);
  const Lanes lanes(call, call.dtype, codec, layout, ranks, max_ctas);
  for (int rank = 0; rank < ranks; ++rank) {
    BlockCall& mine = all[static_cast<size_t>(rank)];
    mine = {};
    mine.peers.rank = rank;
    mine.peers.ranks = ranks;
    mine.layout = layout;
    if (reduces(call.operation)) {
      cut_reduction(call, codec, lanes, &mine);
    } else {
      cut_moves(call, codec, lanes, &mine);
    }
  }
  return all;
}

bool same_cut(const Piece& a, const Piece& b) { return a.bytes == b.bytes && a.lanes == b.lanes && a.slots == b.slots; }

// What `to` takes of what `from` sends it first, and what of what it passes on.
Piece taken(Operation operation, const BlockCall& to, int from) {
  if (reduces(operation)) return to.own;
  return to.relayed == 0 || (to.relayed >> from & 1) != 0 ? to.recv[from] : Piece{};
}
Piece passed_on(const BlockCall& from, int to) {
  if ((from.forward >> to & 1) == 0) return {};
  if (from.relayed == 0) return from.reduced;
  return from.recv[__builtin_ctz(from.relayed)];
}
Piece taken_later(const BlockCall& to, int from) {
  return to.first_forward_lane != 0 && (to.relayed >> from & 1) == 0 ? to.recv[from] : Piece{};
}

TEST_CASE("both ends of every lane know the same of it") {
  std::mt19937_64 random(20261122);
  const auto one_of = [&](auto... values) {
    const uint64_t list[] = {static_cast<uint64_t>(values)...};
    return list[random() % sizeof...(values)];
  };
  for (int round = 0; round < 4000; ++round) {
    const int ranks = 2 + static_cast<int>(random() % 7);
    Call call{all_operations[random() % std::size(all_operations)]};
    call.dtype = static_cast<ncast_dtype>(one_of(NCAST_INT8, NCAST_BFLOAT16, NCAST_FLOAT32, NCAST_FLOAT64));
    call.send = send_begin;
    call.recv = recv_begin;
    call.peer = static_cast<int>(random() % static_cast<uint64_t>(ranks));
    const uint64_t most = one_of(1, 3000, 100'000, 10'000'000, 1'000'000'000);
    call.count = 1 + random() % most;
    const auto codec = static_cast<ncast_codec>(one_of(NCAST_CODEC_RAW, NCAST_CODEC_WINDOW));
    const auto max_ctas = static_cast<uint32_t>(one_of(1, 2, 7, 16, 64, 127, 128));
    CAPTURE(function_name(call.operation));
    CAPTURE(ranks);
    CAPTURE(call.count);
    CAPTURE(call.peer);
    CAPTURE(static_cast<int>(codec));
    CAPTURE(max_ctas);
    const std::vector<BlockCall> all = cut(call, codec, ranks, max_ctas);
    for (int from = 0; from < ranks; ++from) {
      const BlockCall& sender = all[static_cast<size_t>(from)];
      uint32_t ends = 0;
      for (int to = 0; to < ranks; ++to) {
        if (to == from) continue;
        const BlockCall& receiver = all[static_cast<size_t>(to)];
        REQUIRE(same_cut(sender.send[to], taken(call.operation, receiver, from)));
        REQUIRE(same_cut(passed_on(sender, to), taken_later(receiver, from)));
        REQUIRE(sender.first_forward_lane + passed_on(sender, to).lanes <= sender.layout.lanes());
        ends += sender.send[to].lanes;
      }
      // A warp holds an end in each of its threads.
      const Lanes lanes(call, call.dtype, codec, sender.layout, ranks, max_ctas);
      const uint32_t senders =
          reduces(call.operation) ? sender.warps.senders : move_warps(block_bytes(call.dtype, codec)).senders;
      REQUIRE(ends <= 32 * senders * lanes.ctas(sender));
    }
  }
}

TEST_CASE("a warp has a thread for each of its ends, however many kernels share the GPU") {
  Call call{Operation::send};
  for (const uint32_t max_ctas : {1u, 16u, 128u}) {
    for (const ncast_dtype dtype : {NCAST_BFLOAT16, NCAST_FLOAT64}) {
      const channel::ChannelLayout layout(0, 8, lanes_of_ctas(max_ctas), SIZE_MAX);
      const Lanes lanes(call, dtype, NCAST_CODEC_WINDOW, layout, 8, max_ctas);
      BlockCall round = {};
      round.peers.ranks = 8;
      for (int peer = 1; peer < 8; ++peer) round.send[peer] = lanes.piece(send_begin, uint64_t{1} << 30);
      const uint32_t warps = move_warps(block_bytes(dtype, NCAST_CODEC_WINDOW)).senders;
      for (uint32_t kernels = 1; kernels <= 7; ++kernels)
        CHECK(7 * round.send[1].lanes <= 32 * warps * lanes.ctas(round, kernels));
    }
  }
}

TEST_CASE("two communicators' CTAs fit a GPU") {
  constexpr size_t hopper = 228 << 10, ampere = 164 << 10;
  CHECK(ctas_that_fit(132, hopper, 1024) == most_block_ctas);
  CHECK(ctas_that_fit(114, hopper, 1024) == 114);
  CHECK(ctas_that_fit(108, ampere, 1024) == 54);
  CHECK(ctas_that_fit(1, ampere, 1024) == 1);
}

TEST_CASE("a broadcast and a reduction send every value once over the root's link") {
  for (const int ranks : {3, 4, 8}) {
    for (const int root : {0, 2}) {
      for (const uint64_t count : {uint64_t{1}, uint64_t{4097}, uint64_t{50'000'000}}) {
        Call call{Operation::broadcast};
        call.dtype = NCAST_BFLOAT16;
        call.send = send_begin;
        call.recv = recv_begin;
        call.peer = root;
        call.count = count;
        const std::vector<BlockCall> sent = cut(call, NCAST_CODEC_RAW, ranks, 128);
        CHECK(sent_bytes(sent[static_cast<size_t>(root)]) == 2 * count);
        CHECK(sent[static_cast<size_t>(root)].own_copy.bytes == 2 * count);
        for (int rank = 0; rank < ranks; ++rank) {
          // Its pieces are all of its buffer, one after the other.
          std::vector<Piece> pieces(std::begin(sent[static_cast<size_t>(rank)].recv),
                                    std::end(sent[static_cast<size_t>(rank)].recv));
          std::erase_if(pieces, [](const Piece& piece) { return piece.bytes == 0; });
          std::ranges::sort(pieces, {}, &Piece::values);
          const char* next = recv_begin;
          for (const Piece& piece : pieces) {
            CHECK(piece.values == next);
            next = piece.values + piece.bytes;
          }
          CHECK(next == (rank == root ? recv_begin : recv_begin + 2 * count));
        }
        call.operation = Operation::reduce;
        const std::vector<BlockCall> reduced = cut(call, NCAST_CODEC_RAW, ranks, 128);
        uint64_t bytes = 0;
        for (const BlockCall& mine : reduced) bytes += mine.reduced.bytes;
        CHECK(bytes == 2 * count);
        CHECK(reduced[static_cast<size_t>(root)].own.bytes == 0);
        CHECK(sent_bytes(reduced[static_cast<size_t>(root)]) == 2 * count);
      }
    }
  }
}

}  // namespace
}  // namespace narrowcast::collective::cuda
