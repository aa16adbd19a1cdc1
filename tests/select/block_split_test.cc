// Pieces, rings and CTAs of calls by blocks. No GPU is needed.
#include "select/block_split.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "models.h"

namespace narrowcast::select {
namespace {

using testing::gather_of;

CallShape call_of(Operation operation, uint64_t bytes, int ranks) {
  CallShape shape = gather_of(bytes, NCAST_CODEC_RAW);
  shape.operation = operation;
  shape.ranks = ranks;
  shape.clusters = true;
  return shape;
}

TEST_CASE(
    "the pieces of a vector follow each other, in whole blocks, and the root of a broadcast or reduction has none") {
  constexpr uint32_t block = 4096;
  for (const Operation operation : {Operation::broadcast, Operation::reduce, Operation::all_reduce}) {
    for (int ranks = 1; ranks <= most_gpu_ranks; ++ranks) {
      const int root = ranks / 2;
      // Between two ranks the root of a reduction combines a piece, too.
      const bool root_is_idle = ranks > (operation == Operation::reduce ? 2 : 1) && operation != Operation::all_reduce;
      for (const uint64_t bytes : {uint64_t{1}, uint64_t{block}, uint64_t{10 * block + 2}, uint64_t{1} << 33}) {
        CAPTURE(name_of(operation));
        CAPTURE(ranks);
        CAPTURE(bytes);
        const RankPieces pieces(operation, bytes, ranks, root, block);
        uint64_t end = 0, least = bytes, most = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          if (root_is_idle && rank == root) {
            CHECK(pieces.bytes(rank) == 0);
            continue;
          }
          CHECK(pieces.first(rank) == end);
          end += pieces.bytes(rank);
          CHECK((end % block == 0 || end == bytes));
          least = std::min(least, pieces.bytes(rank));
          most = std::max(most, pieces.bytes(rank));
        }
        CHECK(end == bytes);
        CHECK(most - least <= 2 * block);
      }
    }
  }
}

TEST_CASE("a local part of more than 16 MiB is copied by CTAs of its own, which others leave free") {
  for (const Operation operation : {Operation::all_gather, Operation::broadcast, Operation::all_to_all}) {
    CAPTURE(name_of(operation));
    const uint64_t most = most_bytes_of_copiers;
    CHECK(choose_block_shape(call_of(operation, most, 4), NCAST_CODEC_RAW).copy_ctas == 0);
    CHECK(choose_block_shape(call_of(operation, most, 4), NCAST_CODEC_RAW).max_ctas == 64);
    for (const auto& [codec, copy_ctas] : {std::pair{NCAST_CODEC_RAW, 8u}, {NCAST_CODEC_WINDOW, 12u}}) {
      CallShape shape = call_of(operation, most + 1, 4);
      CHECK(choose_block_shape(shape, codec).copy_ctas == copy_ctas);
      CHECK(choose_block_shape(shape, codec).max_ctas == 64 - copy_ctas);
      shape.max_ctas = 63;  // the copy engine copies
      CHECK(choose_block_shape(shape, codec).copy_ctas == 0);
    }
  }
  // The warps that send values which lose something store them.
  const CallShape gather = call_of(Operation::all_gather, most_bytes_of_copiers + 1, 4);
  CHECK(choose_block_shape(gather, NCAST_CODEC_INT8).copy_ctas == 0);
  CHECK(choose_block_shape(gather, NCAST_CODEC_INT8).max_ctas == 64);
  CHECK(choose_block_shape(gather, NCAST_CODEC_INT8).piece_warps == 10);
  CHECK(choose_block_shape(gather, NCAST_CODEC_INT8).recv_warps == 6);
  const CallShape exchange = call_of(Operation::all_to_all, most_bytes_of_copiers + 1, 4);
  CHECK(choose_block_shape(exchange, NCAST_CODEC_INT8).copy_ctas == 12);
  // The local parts of an all_to_all_v are not known to all ranks.
  CHECK(choose_block_shape(call_of(Operation::all_to_all_v, 0, 4), NCAST_CODEC_RAW).copy_ctas == 8);
  CHECK(choose_block_shape(call_of(Operation::send, uint64_t{1} << 30, 2), NCAST_CODEC_RAW).copy_ctas == 0);
}

TEST_CASE("all-reduces with pieces of 16 MiB or more run in clusters of four CTAs, on 60 SMs at most") {
  const auto shape_of = [](Operation operation, uint64_t bytes, uint32_t max_ctas) {
    CallShape shape = call_of(operation, bytes, 2);
    shape.max_ctas = max_ctas;
    return choose_block_shape(shape, NCAST_CODEC_RAW);
  };
  const uint64_t least = 2 * min_clustered_bytes;
  CHECK(shape_of(Operation::all_reduce, least, 64).clustered);
  CHECK_FALSE(shape_of(Operation::all_reduce, least - 8192, 64).clustered);
  CHECK_FALSE(shape_of(Operation::reduce_scatter, least, 64).clustered);
  for (const auto& [max_ctas, used] : {std::pair{64u, 60u}, {60u, 60u}, {59u, 56u}, {4u, 4u}})
    CHECK(shape_of(Operation::all_reduce, least, max_ctas).max_ctas == used);
  CHECK_FALSE(shape_of(Operation::all_reduce, least, 3).clustered);
  CallShape without_room = call_of(Operation::all_reduce, least, 2);
  without_room.clusters = false;
  CHECK_FALSE(choose_block_shape(without_room, NCAST_CODEC_RAW).clustered);
}

TEST_CASE("the warps of a CTA fit its shared memory and registers, and more memory never means fewer of them") {
  MoveWarps last_moving = {};
  uint32_t last_reducing = 0;
  for (const uint32_t block : {8192u, 4096u}) {
    for (const size_t value_bytes : {size_t{1}, size_t{2}}) {
      for (uint32_t bytes = least_shared_bytes; bytes <= most_shared_bytes; bytes += 1024) {
        CAPTURE(bytes);
        const MoveWarps moving = move_warps(bytes, block);
        const uint32_t reducing = reduce_warps(bytes, block, value_bytes);
        CHECK(cta_memory_bytes(moving.with_buffers(), block, 0) <= bytes);
        CHECK(cta_memory_bytes(reduce_rings(reducing), block, reducing_state_bytes) <= bytes);
        CHECK(moving.receivers >= 1);
        CHECK(moving.senders - moving.receivers <= 1);
        CHECK(registers_suffice(moving.all(), most_move_registers(block)));
        CHECK(signal_warp_of(reducing) < reducing);
        // A kernel finds the roles of its warps by their number.
        CHECK(MoveWarps::of(moving.all()).senders == moving.senders);
        CHECK(MoveWarps::of(moving.all()).receivers == moving.receivers);
        // Channels have a ring for every warp that reduces, and two for those that send: they may also relay.
        CHECK(rings_of_ctas(1, bytes) >= std::max(reduce_rings(reducing), 2 * moving.senders));
        if (bytes != least_shared_bytes) {
          CHECK(moving.with_buffers() >= last_moving.with_buffers());
          CHECK(reducing >= last_reducing);
        }
        last_moving = moving;
        last_reducing = reducing;
      }
    }
  }
}

TEST_CASE("kernels have the warps for which an A100, other GPUs before Hopper, and a Hopper have room") {
  const auto warps_of = [](uint32_t kib, uint32_t block_bytes, size_t value_bytes) {
    const MoveWarps moving = move_warps(kib << 10, block_bytes);
    return std::vector{moving.senders, moving.receivers,
                       reduce_rings(reduce_warps(kib << 10, block_bytes, value_bytes))};
  };
  CHECK(warps_of(227, 4096, 2) == std::vector{8u, 8u, 15u});
  CHECK(warps_of(163, 4096, 2) == std::vector{6u, 6u, 11u});
  CHECK(warps_of(99, 4096, 2) == std::vector{4u, 3u, 7u});
  CHECK(warps_of(99, 4096, 1) == std::vector{4u, 3u, 7u});
  CHECK(warps_of(227, 8192, 8) == std::vector{4u, 4u, 7u});
  CHECK(warps_of(99, 8192, 8) == std::vector{2u, 1u, 3u});
}

TEST_CASE("through host memory as many warps send and reduce, whatever the shared memory of their CTAs") {
  for (const uint32_t kib : {99u, 163u, 227u}) {
    CAPTURE(kib);
    CallShape shape = call_of(Operation::all_to_all, uint64_t{1} << 30, 4);
    shape.link = Link::host;
    shape.shared_bytes = kib << 10;
    shape.max_ctas = most_ctas_over_host(shape.shared_bytes, false);
    CHECK(choose_block_shape(shape, NCAST_CODEC_RAW).rings <= 128);
    CHECK(choose_block_shape(shape, NCAST_CODEC_RAW).rings >= 126);
    shape.operation = Operation::reduce_scatter;
    CHECK(choose_block_shape(shape, NCAST_CODEC_RAW).most_rings() <= 252);
    CHECK(choose_block_shape(shape, NCAST_CODEC_RAW).most_rings() >= 224);
    // Twice as many with a lossy codec.
    CHECK(choose_block_shape(shape, NCAST_CODEC_INT8).most_rings() <= 504);
    CHECK(choose_block_shape(shape, NCAST_CODEC_INT8).most_rings() >= 448);
    shape.max_ctas = 4;
    CHECK(choose_block_shape(shape, NCAST_CODEC_INT8).max_ctas == 4);
  }
}

TEST_CASE("a reduction sends a turn ahead if a ring has four slots or more") {
  CHECK(turns_ahead(4) == 1);
  CHECK(turns_ahead(3) == 0);
}

TEST_CASE("a kernel has a CTA for each ring it sends or receives, and enough warps if each serves one piece") {
  BlockShape shape{};
  shape.block_bytes = 4096;
  shape.piece_warps = shape.recv_warps = 8;
  shape.max_ctas = 10;
  const auto ctas = [&](std::vector<uint32_t> sent, uint32_t received, uint64_t kept_bytes, bool one_piece_per_warp) {
    return ctas_of_kernel(shape, {sent, received, kept_bytes, one_piece_per_warp});
  };
  CHECK(ctas({}, 0, 0, false) == 1);
  CHECK(ctas({3, 4}, 6, 0, false) == 7);
  CHECK(ctas({3, 4}, 9, 0, false) == 9);
  CHECK(ctas({3, 4}, 0, 9 * 4096, false) == 9);
  CHECK(ctas({3, 80}, 0, 0, false) == 10);
  CHECK(ctas({32 * 8 * 10 + 1}, 0, 0, false) == 11);  // a thread for each end
  shape.max_ctas = 1;
  CHECK(ctas(std::vector<uint32_t>(9, 1), 0, 0, false) == 1);
  CHECK(ctas(std::vector<uint32_t>(9, 1), 0, 0, true) == 2);
  // A block to each of three others, or what stays on the rank.
  CHECK(choose_block_shape(call_of(Operation::all_gather, 4096, 4), NCAST_CODEC_RAW).ctas == 3);
  CHECK(choose_block_shape(call_of(Operation::all_gather, 5 * 4096, 2), NCAST_CODEC_RAW).ctas == 5);
}

}  // namespace
}  // namespace narrowcast::select
