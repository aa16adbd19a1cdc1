// Shapes of calls by packets, and what ranks send. No GPU is needed.
#include "select/packet_shape.h"

#include <algorithm>

#include "channel/packet/packet_area.h"
#include "doctest/doctest.h"
#include "support/packet_operations.h"

namespace narrowcast::select {
namespace {

constexpr Link links[] = {Link::nvlink, Link::pcie, Link::host};

TEST_CASE("a call that fits the packet buffers has a possible shape, on every link") {
  for (const Operation operation : narrowcast::testing::packet_operations()) {
    for (int ranks = 2; ranks <= channel::max_gpu_ranks; ++ranks) {
      for (const Link link : links) {
        const uint64_t most = most_packet_bytes(operation, ranks, link);
        for (uint64_t bytes = 1; bytes <= most; bytes = bytes < most ? std::min(most, bytes * 3) : most + 1) {
          for (const auto& [ctas, shots] : {std::pair{1u, Shots::fastest}, std::pair{5u, Shots::one},
                                            std::pair{64u, Shots::two}, std::pair{64u, Shots::fastest}}) {
            CAPTURE(static_cast<int>(operation));
            CAPTURE(static_cast<int>(shots));
            CAPTURE(ranks);
            CAPTURE(name_of(link));
            CAPTURE(bytes);
            const PacketShape shape = choose_packet_shape(operation, bytes, ranks, link, ctas, shots);
            CHECK(is_possible(shape, operation, bytes, ranks));
            CHECK(shape.ctas <= ctas);
            CHECK((shape.form == PacketForm::words) == (link == Link::host));
            CHECK((shape.form != PacketForm::lines || link == Link::nvlink));
            // The rows of pieces and of results fit the buffers.
            const uint32_t rows = packet_rows_of(shape.two_shot, shape.form, bytes, ranks);
            const uint32_t room = channel::with_packet(
                shape.form, [&]<typename Packet>() { return channel::packet_rows<Packet>(ranks); });
            CHECK(rows <= room / (shape.two_shot ? 2 : 1));
            // A CTA has four warps, and more only if four in every CTA are too few.
            const uint32_t jobs = jobs_of(operation, rows, ranks);
            CHECK(shape.warps >= std::min(jobs, 4u));
            if (shape.warps > 4) CHECK((shape.warps - 1) * ctas < jobs);
          }
        }
        CHECK_FALSE(is_possible(choose_packet_shape(operation, most + 1, ranks, link, 64), operation, most + 1, ranks));
      }
    }
  }
}

TEST_CASE("pieces of 64 KiB or more use packets of 128 bytes, where the link delivers them") {
  CHECK(packet_form(64 << 10, Link::nvlink) == PacketForm::lines);
  CHECK(packet_form((64 << 10) - 1, Link::nvlink) == PacketForm::short_packets);
  CHECK(packet_form(64 << 10, Link::pcie) == PacketForm::short_packets);
}

TEST_CASE("a rank that is alone copies its values, so no buffer limits them") {
  for (const Operation operation : {Operation::all_gather, Operation::all_reduce})
    CHECK(most_packet_bytes(operation, 1, Link::nvlink) == UINT64_MAX);
}

TEST_CASE("two ranks take two shots where a warp would reduce several rows in one") {
  for (const auto& [link, row_bytes] : {std::pair{Link::nvlink, uint64_t{channel::LinePacket::row_bytes}},
                                        std::pair{Link::host, uint64_t{channel::WordPacket::row_bytes}}}) {
    const uint64_t one_turn = row_bytes * channel::max_packet_ctas * 16;
    CHECK(most_one_shot_bytes(2, link) == one_turn);
    for (const uint64_t bytes : {uint64_t{65536}, one_turn, one_turn + 2, uint64_t{1} << 20}) {
      CAPTURE(bytes);
      const PacketShape shape = choose_packet_shape(Operation::all_reduce, bytes, 2, link, 0, Shots::fastest);
      CHECK(shape.two_shot == (bytes > one_turn));
      CHECK_FALSE(choose_packet_shape(Operation::all_reduce, bytes, 2, link, 0, Shots::one).two_shot);
    }
  }
}

TEST_CASE("between more ranks two shots are taken where they save the time of 440 KiB") {
  for (int ranks = 4; ranks <= channel::max_gpu_ranks; ++ranks) {
    CAPTURE(ranks);
    const uint64_t most = most_one_shot_bytes(ranks, Link::nvlink);
    const auto sent = [&](bool two_shot) {
      return static_cast<double>(sent_by_packets(Operation::all_reduce, {two_shot, 1, 1}, most, 0, ranks, 0));
    };
    CHECK(sent(false) - sent(true) == doctest::Approx(440 << 10).epsilon(0.01));
    CHECK_FALSE(choose_packet_shape(Operation::all_reduce, most, ranks, Link::nvlink, 0).two_shot);
    CHECK(choose_packet_shape(Operation::all_reduce, most + 1, ranks, Link::nvlink, 0).two_shot);
  }
}

TEST_CASE("all ranks together send the bytes that the operation delivers") {
  for (const Operation operation : narrowcast::testing::packet_operations()) {
    for (int ranks = 2; ranks <= channel::max_gpu_ranks; ++ranks) {
      for (const bool two_shot : {false, true}) {
        if (two_shot && operation != Operation::all_reduce) continue;
        for (const uint64_t bytes : {uint64_t{2}, uint64_t{1000}, uint64_t{65536}, uint64_t{100002}}) {
          const PacketShape shape{two_shot, 1, 1};
          if (!is_possible(shape, operation, bytes, ranks)) continue;
          CAPTURE(static_cast<int>(operation));
          CAPTURE(ranks);
          CAPTURE(bytes);
          const int root = ranks / 2;
          uint64_t all = 0, of_root = 0;
          for (int rank = 0; rank < ranks; ++rank) {
            const uint64_t sent = sent_by_packets(operation, shape, bytes, rank, ranks, root);
            all += sent;
            if (rank == root) of_root = sent;
          }
          const auto others = static_cast<uint64_t>(ranks - 1);
          const bool from_root = operation == Operation::broadcast || operation == Operation::scatter;
          const bool to_root = operation == Operation::gather || operation == Operation::reduce;
          const uint64_t pieces = from_root || to_root ? others : two_shot ? 2 * others : (others + 1) * others;
          CHECK(all == pieces * bytes);
          if (from_root) CHECK(of_root == all);
          if (to_root) CHECK(of_root == 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace narrowcast::select
