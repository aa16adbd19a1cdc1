// The ranks cut a call into the same pieces, rings and turns, and the reduction's order of steps cannot deadlock.
#include <algorithm>
#include <random>
#include <vector>

#include "doctest/doctest.h"
#include "executor/cuda/cut_calls.h"
#include "select/decision.h"
#include "support/codec_table.h"

namespace narrowcast::executor::cuda {
namespace {

// A codec and a value type that it supports.
struct CodedType {
  ncast_codec codec;
  ncast_dtype dtype;
};
const std::vector<CodedType>& coded_types() {
  static const std::vector<CodedType> all = [] {
    std::vector<CodedType> found;
    for (const ncast_codec_info& info : tests::all_codecs())
      for (const ncast_codec codec : tests::variants_of(info))
        for (uint32_t i = 0; i < info.type_count; ++i) found.push_back({codec, info.types[i].dtype});
    return found;
  }();
  return all;
}

using testing::all_operations;
using testing::cut;
using testing::recv_begin;
using testing::rings_for;
using testing::send_begin;

bool same_division(const Piece& a, const Piece& b) {
  return a.bytes == b.bytes && a.rings == b.rings && a.slots == b.slots;
}

// The piece that `to` receives from `from` first.
Piece first_received(Operation operation, const BlockCall& to, int from) {
  if (reduces(operation)) return to.own;
  return to.relayed == 0 || (to.relayed >> from & 1) != 0 ? to.recv[from] : Piece{};
}
// The relayed or reduced piece that `from` sends to `to`.
Piece forwarded(const BlockCall& from, int to) {
  if ((from.forward >> to & 1) == 0) return {};
  if (from.relayed == 0) return from.reduced;
  return from.recv[__builtin_ctz(from.relayed)];
}
// The relayed or reduced piece that `to` receives from `from`.
Piece second_received(const BlockCall& to, int from) {
  if (to.turns.rings != 0) return to.recv[from];
  return to.first_forward_ring != 0 && (to.relayed >> from & 1) == 0 ? to.recv[from] : Piece{};
}
uint64_t largest_piece(const BlockCall& call) {
  uint64_t bytes = call.own.bytes;
  for (const auto& pieces : {call.send, call.recv})
    for (int peer = 0; peer < call.peers.ranks; ++peer) bytes = std::max(bytes, pieces[peer].bytes);
  return bytes;
}

TEST_CASE("both ends of every ring use the same piece, rings and slots") {
  std::mt19937_64 random(20261122);
  const auto one_of = [&](auto... values) {
    const uint64_t list[] = {static_cast<uint64_t>(values)...};
    return list[random() % sizeof...(values)];
  };
  for (int round = 0; round < 4000; ++round) {
    const int ranks = 2 + static_cast<int>(random() % 7);
    Call call{all_operations[random() % std::size(all_operations)]};
    const auto [codec, dtype] = coded_types()[random() % coded_types().size()];
    call.dtype = dtype;
    call.send = send_begin;
    call.recv = recv_begin;
    call.peer = static_cast<int>(random() % static_cast<uint64_t>(ranks));
    const uint64_t most = one_of(1, 3000, 100'000, 10'000'000, 1'000'000'000);
    call.count = 1 + random() % most;
    const auto max_ctas = static_cast<uint32_t>(one_of(1, 2, 7, 16, 57, 63, 64));
    const auto shared_bytes = static_cast<uint32_t>(one_of(64, 99, 163, 227)) << 10;
    CAPTURE(shared_bytes);
    CAPTURE(function_name(call.operation));
    CAPTURE(ranks);
    CAPTURE(call.count);
    CAPTURE(call.peer);
    CAPTURE(codec);
    CAPTURE(max_ctas);
    const std::vector<BlockCall> all = cut(call, codec, ranks, max_ctas, shared_bytes);
    for (int from = 0; from < ranks; ++from) {
      const BlockCall& sender = all[static_cast<size_t>(from)];
      uint32_t ends = 0, received_ends = 0;
      for (int to = 0; to < ranks; ++to) {
        if (to == from) continue;
        const BlockCall& receiver = all[static_cast<size_t>(to)];
        REQUIRE(same_division(sender.send[to], first_received(call.operation, receiver, from)));
        REQUIRE(same_division(forwarded(sender, to), second_received(receiver, from)));
        REQUIRE(sender.turns.rings == receiver.turns.rings);
        REQUIRE(sender.turns.slots == receiver.turns.slots);
        REQUIRE(sender.turns.count == receiver.turns.count);
        REQUIRE(sender.first_forward_ring + forwarded(sender, to).rings <= sender.layout.rings());
        ends += sender.send[to].rings;
        if ((sender.relayed >> to & 1) == 0) received_ends += sender.recv[to].rings;
      }
      const Rings rings = rings_for(call, codec, ranks, max_ctas, shared_bytes);
      const Grid grid = rings.grid(sender);
      REQUIRE(grid.shared_bytes <= shared_bytes);
      const uint32_t bytes = block_bytes(call.dtype, codec);
      if (reduces(call.operation)) {
        // There is a warp for every ring and a turn for every block.
        REQUIRE(sender.turns.rings <= sender.layout.rings());
        REQUIRE(grid.warps == reduce_warps(shared_bytes, bytes, ncast_dtype_bytes(call.dtype)));
        REQUIRE(sender.turns.rings <= grid.ctas * reduce_rings(grid.warps));
        REQUIRE(uint64_t{sender.turns.rings} * sender.turns.count * bytes >= largest_piece(sender));
      } else {
        // There is a thread of a sending warp, or of a receiving one, for every end.
        const MoveWarps warps = MoveWarps::of(grid.warps, sends_together(call.operation, codec));
        REQUIRE(ends <= 32 * warps.senders * grid.ctas);
        REQUIRE(received_ends <= 32 * warps.receivers * grid.ctas);
      }
    }
  }
}

// A message of a ring in the simulation of an all-reduce.
struct Message {
  bool is_result;
  uint32_t turn;
  bool operator==(const Message&) const = default;
};
struct Step {
  bool sends;
  int peer;
  Message message;
};

// The steps of a rank's warp in an all-reduce, in the order of reducing_warp.cuh. blocks: how many blocks of each
// rank's piece are on this ring.
std::vector<Step> steps_of(int rank, const std::vector<uint32_t>& blocks, uint32_t ahead) {
  const int ranks = static_cast<int>(blocks.size());
  const auto of = [&](int other) { return blocks[static_cast<size_t>(other)]; };
  const uint32_t turns = *std::ranges::max_element(blocks);
  std::vector<Step> steps;
  const auto to_each = [&](bool sends, bool is_result, uint32_t turn, auto has) {
    for (int step = 1; step < ranks; ++step) {
      const int peer = (rank + step) % ranks;
      if (has(peer)) steps.push_back({sends, peer, {is_result, turn}});
    }
  };
  const auto send = [&](uint32_t turn) { to_each(true, false, turn, [&](int peer) { return turn < of(peer); }); };
  for (uint32_t turn = 0; turn < ahead; ++turn) send(turn);
  for (uint32_t turn = 0; turn < turns + ahead; ++turn) {
    send(turn + ahead);
    const auto reduces_now = [&](int) { return turn < of(rank); };
    to_each(false, false, turn, reduces_now);
    to_each(true, true, turn, reduces_now);
    if (turn >= ahead) to_each(false, true, turn - ahead, [&](int peer) { return turn - ahead < of(peer); });
  }
  return steps;
}

// Simulates all ranks until none can continue. Returns whether all finished and received the expected messages.
bool completes(const std::vector<uint32_t>& blocks, uint32_t slots) {
  const size_t ranks = blocks.size();
  struct Ring {
    std::vector<Message> sent;
    uint32_t received = 0, granted = 0;
  };
  std::vector<std::vector<Ring>> rings(ranks, std::vector<Ring>(ranks));
  std::vector<std::vector<Step>> steps;
  for (size_t rank = 0; rank < ranks; ++rank)
    steps.push_back(steps_of(static_cast<int>(rank), blocks, turns_ahead(slots)));
  std::vector<size_t> finished_steps(ranks);
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t rank = 0; rank < ranks; ++rank) {
      for (; finished_steps[rank] < steps[rank].size(); ++finished_steps[rank], progress = true) {
        const Step& step = steps[rank][finished_steps[rank]];
        const auto peer = static_cast<size_t>(step.peer);
        Ring& ring = step.sends ? rings[rank][peer] : rings[peer][rank];
        if (step.sends) {
          if (ring.sent.size() - ring.granted >= slots) break;
          ring.sent.push_back(step.message);
        } else {
          if (ring.received == ring.sent.size()) break;
          if (!(ring.sent[ring.received] == step.message)) return false;
          ++ring.received;
          if (ring.received - ring.granted >= channel::slots_of_grant(slots)) ring.granted = ring.received;
        }
      }
    }
  }
  for (size_t rank = 0; rank < ranks; ++rank)
    if (finished_steps[rank] != steps[rank].size()) return false;
  return true;
}

TEST_CASE("the warps of a reduction do not deadlock and agree on the order of messages") {
  std::mt19937_64 random(20261123);
  for (int round = 0; round < 2000; ++round) {
    const size_t ranks = 2 + random() % 7;
    const uint32_t turns = 1 + static_cast<uint32_t>(random() % 12);
    std::vector<uint32_t> blocks(ranks);
    // Pieces differ by up to one block, and some are empty, like that of the root of a reduce.
    for (uint32_t& of_rank : blocks) of_rank = random() % 8 == 0 ? 0 : turns - static_cast<uint32_t>(random() % 2);
    for (const uint32_t slots : {1u, 2u, 4u, 8u}) {
      CAPTURE(slots);
      CAPTURE(turns);
      CHECK(completes(blocks, slots));
    }
  }
}

TEST_CASE("there is a thread for every end, for any number of concurrent kernels") {
  Call call{Operation::send};
  for (const uint32_t max_ctas : {1u, 16u, 64u}) {
    for (const uint32_t shared_bytes : {least_shared_bytes, 99u << 10, most_shared_bytes}) {
      for (const auto& [codec, dtype] : coded_types()) {
        call.dtype = dtype;
        const Rings rings = rings_for(call, codec, 8, max_ctas, shared_bytes);
        BlockCall round = {};
        round.peers.ranks = 8;
        for (int peer = 1; peer < 8; ++peer)
          round.send[peer] = round.recv[peer] = rings.piece(send_begin, uint64_t{1} << 30);
        for (uint32_t kernels = 1; kernels <= 7; ++kernels) {
          const Grid grid = rings.grid(round, kernels);
          CHECK(7 * round.send[1].rings <= 32 * MoveWarps::of(grid.warps).senders * grid.ctas);
          CHECK(7 * round.recv[1].rings <= 32 * MoveWarps::of(grid.warps).receivers * grid.ctas);
        }
      }
    }
  }
}

TEST_CASE("the concurrent kernels of a call share the maximum number of CTAs") {
  Call call{Operation::send};
  for (const uint32_t max_ctas : {16u, 57u, 64u}) {
    for (const uint32_t kernels : {1u, 2u, 4u}) {
      uint32_t ctas = 0;
      for (uint32_t kernel = 0; kernel < kernels; ++kernel) {
        const auto& [codec, dtype] = coded_types()[kernel * 7 % coded_types().size()];
        call.dtype = dtype;
        const Rings rings = rings_for(call, codec, 3, max_ctas);
        BlockCall round = {};
        round.peers.ranks = 3;
        round.send[1] = round.recv[1] = rings.piece(send_begin, uint64_t{1} << 30);
        ctas += rings.grid(round, kernels).ctas;
      }
      CHECK(ctas <= max_ctas);
      CHECK(ctas > max_ctas - kernels);
    }
  }
}

TEST_CASE("blocks are assigned only if a ring has several and does not get them in turn") {
  Call call{Operation::all_gather};
  call.dtype = NCAST_BFLOAT16;
  call.send = send_begin;
  call.recv = recv_begin;
  const auto assigns = [&](uint64_t bytes, int ranks, int rank) {
    call.count = bytes / 2;
    const uint32_t bytes_of_block = rings_for(call, NCAST_CODEC_RAW, ranks, 64).block_bytes();
    return assigns_blocks(cut(call, NCAST_CODEC_RAW, ranks, 64)[static_cast<size_t>(rank)], bytes_of_block);
  };
  for (const int ranks : {2, 4, 8}) {
    CAPTURE(ranks);
    call.operation = Operation::all_gather;
    call.count = 1;
    const Rings rings = rings_for(call, NCAST_CODEC_RAW, ranks, 64);
    const uint64_t one_each = uint64_t{rings.most_rings()} * rings.block_bytes();
    CHECK(!assigns(2, ranks, 0));
    CHECK(!assigns(one_each, ranks, 0));
    CHECK(assigns(one_each + 2, ranks, 0));
    call.operation = Operation::broadcast;
    CHECK(assigns(64 * one_each, ranks, 0) == (ranks == 2));  // several receivers relay, which needs an order
    CHECK(!assigns(64 * one_each, ranks, 1));                 // sends nothing, or relays
  }
}

TEST_CASE("ranks keep what their values decode to where all ranks get them") {
  Call call{Operation::all_gather};
  call.dtype = NCAST_BFLOAT16;
  call.send = send_begin;
  call.recv = recv_begin;
  call.peer = 2;
  call.count = 100'000;
  const int ranks = 4;
  for (int rank = 0; rank < ranks; ++rank) {
    CAPTURE(rank);
    const auto of = [&](Operation operation, ncast_codec codec) {
      call.operation = operation;
      return cut(call, codec, ranks, 64)[static_cast<size_t>(rank)];
    };
    const BlockCall gather = of(Operation::all_gather, NCAST_CODEC_INT8);
    CHECK(gather.kept == recv_begin + static_cast<size_t>(rank) * 200'000);
    CHECK(gather.sent_together == (0xfu & ~(1u << rank)));
    CHECK(gather.local_copy.bytes == 0);
    const BlockCall broadcast = of(Operation::broadcast, NCAST_CODEC_INT8);
    CHECK(broadcast.kept == (rank == call.peer ? recv_begin : nullptr));
    CHECK(broadcast.sent_together == 0);  // the ranks get different pieces, and relay them
    CHECK(broadcast.local_copy.bytes == 0);
    CHECK(of(Operation::all_to_all, NCAST_CODEC_INT8).kept == nullptr);
    CHECK(of(Operation::all_to_all, NCAST_CODEC_INT8).local_copy.bytes == 200'000);
    CHECK(of(Operation::all_gather, NCAST_CODEC_WINDOW).kept == nullptr);
    CHECK(of(Operation::all_gather, NCAST_CODEC_WINDOW).sent_together == 0);
  }
}

TEST_CASE("the CTAs of two communicators fit on a GPU") {
  CHECK(ctas_that_fit(132) == most_block_ctas);
  CHECK(ctas_that_fit(114) == 57);
  CHECK(ctas_that_fit(1) == 1);
}

TEST_CASE("broadcast and reduce transfer every value once over the link of the root") {
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
        CHECK(sent[static_cast<size_t>(root)].local_copy.bytes == 2 * count);
        for (int rank = 0; rank < ranks; ++rank) {
          // The received pieces cover the buffer without gaps or overlaps.
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
        for (const BlockCall& call_of_rank : reduced) bytes += call_of_rank.reduced.bytes;
        CHECK(bytes == 2 * count);
        CHECK(reduced[static_cast<size_t>(root)].own.bytes == 0);
        CHECK(sent_bytes(reduced[static_cast<size_t>(root)]) == 2 * count);
      }
    }
  }
}

TEST_CASE("every ring of point-to-point messages has a warp, and a warp serves one peer") {
  std::mt19937_64 random(20261124);
  for (int round = 0; round < 2000; ++round) {
    const int ranks = 2 + static_cast<int>(random() % 7);
    const auto [codec, dtype] = coded_types()[random() % coded_types().size()];
    const uint32_t max_ctas = 1 + static_cast<uint32_t>(random() % most_block_ctas);
    Call send{Operation::send};
    send.dtype = dtype;
    const uint32_t shared_bytes = random() % 2 == 0 ? most_shared_bytes : 99u << 10;
    const Rings rings = rings_for(send, codec, ranks, max_ctas, shared_bytes);
    BlockCall call = {};
    call.peers.ranks = ranks;
    call.is_point_to_point = true;
    uint32_t all_rings = 0, count = 0;
    for (int peer = 1; peer < ranks; ++peer) {
      if (random() % 4 == 0) continue;
      call.send[peer] = rings.piece(send_begin, 1 + random() % (random() % 2 == 0 ? 10'000 : 10'000'000));
      all_rings += call.send[peer].rings;
      ++count;
    }
    const uint32_t kernels = 1 + static_cast<uint32_t>(random() % 4);
    const Grid grid = rings.grid(call, kernels);
    const uint32_t warps = grid.ctas * MoveWarps::of(grid.warps).senders;
    uint32_t assigned_warps = 0;
    for (int peer = 1; peer < ranks; ++peer) {
      if (call.send[peer].bytes == 0) continue;
      const uint32_t warps_for_piece = warps_of_piece(call.send[peer].rings, all_rings, count, warps);
      REQUIRE(warps_for_piece >= 1);
      REQUIRE(call.send[peer].rings <= warps_for_piece * 32);
      assigned_warps += warps_for_piece;
    }
    REQUIRE(assigned_warps <= warps);
  }
}

}  // namespace
}  // namespace narrowcast::executor::cuda
