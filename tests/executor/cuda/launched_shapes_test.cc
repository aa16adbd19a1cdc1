// The shapes in which calls by blocks are launched. The cost model was measured with them, so a change of this table
// needs new measurements.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "executor/cuda/cut_calls.h"
#include "select/decision.h"
#include "support/codec_table.h"

namespace narrowcast::executor::cuda {
namespace {

using testing::all_operations;
using testing::cut;
using testing::recv_begin;
using testing::rings_for;
using testing::send_begin;

// The kernels of a collective on all ranks. Long local copies are not included, because they have their own kernel.
struct Launched {
  std::vector<BlockCall> calls;
  std::vector<uint32_t> ctas;
};

Launched launched(Operation operation, ncast_dtype dtype, ncast_codec codec, int ranks, int root, uint64_t count,
                  uint32_t max_ctas, bool in_place = false) {
  Call call{operation};
  call.dtype = dtype;
  call.send = send_begin;
  call.recv = in_place ? send_begin : recv_begin;
  call.peer = root;
  call.count = count;
  if (operation == Operation::all_to_all_v) {
    PeerCounts counts;
    for (uint64_t peer = 0; peer < static_cast<uint64_t>(ranks); ++peer) {
      counts.send.push_back({peer * count, count * peer / 3});
      counts.recv.push_back({peer * count, count / (peer + 1)});
    }
    call.peer_counts = std::make_shared<const PeerCounts>(counts);
    call.count = 0;
  }
  const Rings rings = rings_for(call, codec, ranks, max_ctas);
  Launched result{cut(call, codec, ranks, max_ctas), {}};
  for (BlockCall& one : result.calls) {
    if (one.local_copy.bytes > most_bytes_of_copiers) one.local_copy = {};
    result.ctas.push_back(rings.grid(one).ctas);
  }
  return result;
}

// The largest piece that any rank sends or receives.
Piece largest_piece(const Launched& launched) {
  Piece largest = {};
  for (const BlockCall& call : launched.calls)
    for (const auto& pieces : {call.send, call.recv})
      for (int peer = 0; peer < call.peers.ranks; ++peer)
        if (pieces[peer].bytes > largest.bytes) largest = pieces[peer];
  return largest;
}

struct Row {
  Operation operation;
  ncast_dtype dtype;
  ncast_codec codec;
  int ranks;
  uint64_t count;
  uint32_t max_ctas;
  // Expected: CTAs of the root (rank 0) and of the last rank; rings and slots of the largest piece; turns.
  uint32_t root_ctas, last_ctas, rings, slots, turns;
};

constexpr ncast_codec raw = NCAST_CODEC_RAW, window = NCAST_CODEC_WINDOW;
constexpr ncast_dtype int8 = NCAST_INT8, bfloat16 = NCAST_BFLOAT16, float64 = NCAST_FLOAT64;

const Row rows[] = {
    // clang-format off
    {Operation::broadcast, bfloat16, raw, 2, 9000, 64, 5, 5, 5, 4, 0},
    {Operation::broadcast, bfloat16, window, 2, 1 << 25, 64, 52, 52, 416, 8, 0},
    {Operation::broadcast, bfloat16, window, 4, 20000, 64, 10, 10, 4, 4, 0},
    {Operation::broadcast, bfloat16, raw, 4, 1 << 25, 64, 56, 56, 448, 4, 0},
    {Operation::broadcast, float64, window, 8, 1 << 18, 16, 16, 16, 37, 4, 0},
    {Operation::broadcast, int8, raw, 8, 1 << 20, 57, 57, 57, 37, 4, 0},
    {Operation::reduce, bfloat16, raw, 2, 9000, 64, 3, 3, 3, 8, 1},
    {Operation::reduce, bfloat16, window, 2, 1 << 25, 64, 64, 64, 911, 8, 9},
    {Operation::reduce, bfloat16, window, 4, 20000, 64, 4, 4, 4, 8, 1},
    {Operation::reduce, bfloat16, raw, 4, 1 << 25, 64, 64, 64, 911, 8, 6},
    {Operation::reduce, float64, window, 8, 1 << 18, 16, 16, 16, 37, 4, 1},
    {Operation::reduce, int8, raw, 8, 1 << 20, 57, 37, 37, 37, 8, 1},
    {Operation::gather, bfloat16, raw, 2, 9000, 64, 5, 5, 5, 4, 0},
    {Operation::gather, bfloat16, window, 2, 1 << 25, 64, 52, 52, 416, 8, 0},
    {Operation::gather, bfloat16, window, 4, 20000, 64, 30, 10, 10, 4, 0},
    {Operation::gather, bfloat16, raw, 4, 1 << 25, 64, 56, 56, 448, 8, 0},
    {Operation::gather, float64, window, 8, 1 << 18, 16, 16, 16, 64, 4, 0},
    {Operation::gather, int8, raw, 8, 1 << 20, 57, 57, 57, 256, 4, 0},
    {Operation::scatter, bfloat16, raw, 2, 9000, 64, 5, 5, 5, 4, 0},
    {Operation::scatter, bfloat16, window, 2, 1 << 25, 64, 52, 52, 416, 8, 0},
    {Operation::scatter, bfloat16, window, 4, 20000, 64, 30, 10, 10, 4, 0},
    {Operation::scatter, bfloat16, raw, 4, 1 << 25, 64, 56, 56, 448, 8, 0},
    {Operation::scatter, float64, window, 8, 1 << 18, 16, 16, 16, 64, 4, 0},
    {Operation::scatter, int8, raw, 8, 1 << 20, 57, 57, 57, 256, 4, 0},
    {Operation::all_gather, bfloat16, raw, 2, 9000, 64, 5, 5, 5, 4, 0},
    {Operation::all_gather, bfloat16, window, 2, 1 << 25, 64, 52, 52, 416, 8, 0},
    {Operation::all_gather, bfloat16, window, 4, 20000, 64, 30, 30, 10, 4, 0},
    {Operation::all_gather, bfloat16, raw, 4, 1 << 25, 64, 56, 56, 448, 8, 0},
    {Operation::all_gather, float64, window, 8, 1 << 18, 16, 16, 16, 64, 4, 0},
    {Operation::all_gather, int8, raw, 8, 1 << 20, 57, 57, 57, 256, 4, 0},
    {Operation::all_to_all, bfloat16, raw, 2, 9000, 64, 5, 5, 5, 4, 0},
    {Operation::all_to_all, bfloat16, window, 2, 1 << 25, 64, 52, 52, 416, 8, 0},
    {Operation::all_to_all, bfloat16, window, 4, 20000, 64, 30, 30, 10, 4, 0},
    {Operation::all_to_all, bfloat16, raw, 4, 1 << 25, 64, 56, 56, 448, 8, 0},
    {Operation::all_to_all, float64, window, 8, 1 << 18, 16, 16, 16, 64, 4, 0},
    {Operation::all_to_all, int8, raw, 8, 1 << 20, 57, 57, 57, 256, 4, 0},
    {Operation::reduce_scatter, bfloat16, raw, 2, 9000, 64, 5, 5, 5, 4, 1},
    {Operation::reduce_scatter, bfloat16, window, 2, 1 << 25, 64, 64, 64, 911, 8, 18},
    {Operation::reduce_scatter, bfloat16, window, 4, 20000, 64, 10, 10, 10, 4, 1},
    {Operation::reduce_scatter, bfloat16, raw, 4, 1 << 25, 64, 64, 64, 911, 8, 18},
    {Operation::reduce_scatter, float64, window, 8, 1 << 18, 16, 16, 16, 86, 4, 3},
    {Operation::reduce_scatter, int8, raw, 8, 1 << 20, 57, 57, 57, 256, 4, 1},
    {Operation::all_reduce, bfloat16, raw, 2, 9000, 64, 3, 3, 3, 8, 1},
    {Operation::all_reduce, bfloat16, window, 2, 1 << 25, 64, 64, 64, 911, 8, 9},
    {Operation::all_reduce, bfloat16, window, 4, 20000, 64, 3, 3, 3, 8, 1},
    {Operation::all_reduce, bfloat16, raw, 4, 1 << 25, 64, 64, 64, 820, 8, 5},
    {Operation::all_reduce, float64, window, 8, 1 << 18, 16, 16, 16, 32, 4, 1},
    {Operation::all_reduce, int8, raw, 8, 1 << 20, 57, 32, 32, 32, 8, 1},
    // clang-format on
};

TEST_CASE("calls are launched in the shapes that the cost model was measured with") {
  for (const Row& row : rows) {
    CAPTURE(function_name(row.operation));
    CAPTURE(row.ranks);
    CAPTURE(row.count);
    CAPTURE(row.max_ctas);
    const Launched launch = launched(row.operation, row.dtype, row.codec, row.ranks, 0, row.count, row.max_ctas);
    const Piece piece = largest_piece(launch);
    const Turns turns = launch.calls[0].turns;
    CHECK(launch.ctas.front() == row.root_ctas);
    CHECK(launch.ctas.back() == row.last_ctas);
    CHECK(std::max(piece.rings, turns.rings) == row.rings);
    CHECK(std::max(piece.slots, turns.slots) == row.slots);
    CHECK(turns.count == row.turns);
  }
}

TEST_CASE("a decision has the shape of the rank with the most work") {
  const CostModel none;
  for (const Operation operation : all_operations) {
    for (const ncast_dtype dtype : {NCAST_INT8, NCAST_BFLOAT16, NCAST_FLOAT64}) {
      for (const ncast_codec codec : {NCAST_CODEC_RAW, NCAST_CODEC_WINDOW}) {
        for (int ranks = 2; ranks <= 8; ++ranks) {
          for (const uint32_t max_ctas : {1u, 7u, 16u, 57u, 64u}) {
            for (uint64_t count = 1; count < uint64_t{1} << 31; count = count * 3 + 1) {
              CAPTURE(function_name(operation));
              CAPTURE(ranks);
              CAPTURE(count);
              CAPTURE(max_ctas);
              const CallShape shape{
                  operation,    dtype,   tests::forced(codec), count * ncast_dtype_bytes(dtype), ranks,
                  Link::nvlink, max_ctas};
              const Decision decision = decide(shape, {none, ForcedTransport::blocks});
              REQUIRE(decision.blocks.has_value());
              CHECK(decision.blocks->codec == decision.codec);
              const Launched launch = launched(operation, dtype, decision.codec, ranks, ranks - 1, count, max_ctas);
              const Piece largest = largest_piece(launch);
              const uint32_t rings = std::max(largest.rings, launch.calls[0].turns.rings);
              CHECK(std::ranges::max(launch.ctas) == decision.blocks->ctas);
              CHECK(rings == decision.blocks->rings);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("long all-reduces are launched in clusters if the GPUs have room for them") {
  const auto shape_of = [](Operation operation, uint64_t bytes, uint32_t max_ctas, bool clusters) {
    return choose_block_shape({operation, bfloat16, window, bytes, 2, Link::nvlink, max_ctas, clusters}, window);
  };
  const uint64_t shortest = 2 * min_clustered_bytes;  // of the vector, which two ranks share
  const BlockShape clustered = shape_of(Operation::all_reduce, shortest, 64, true);
  CHECK(clustered.clustered);
  CHECK(clustered.ctas == 60);
  CHECK(clustered.rings == 820);  // 4096 blocks in 5 turns

  for (const BlockShape& other :
       {shape_of(Operation::all_reduce, shortest - 2 * clustered.block_bytes, 64, true),
        shape_of(Operation::all_reduce, shortest, 64, false), shape_of(Operation::reduce_scatter, shortest, 64, true),
        shape_of(Operation::all_gather, shortest, 64, true)}) {
    CHECK(!other.clustered);
    CHECK(other.max_ctas != 60);
  }
  // Whole clusters only.
  CHECK(shape_of(Operation::all_reduce, shortest, 31, true).ctas == 28);
  CHECK(shape_of(Operation::all_reduce, shortest, 4, true).ctas == 4);
  const BlockShape few = shape_of(Operation::all_reduce, shortest, 3, true);
  CHECK(!few.clustered);
  CHECK(few.ctas == 3);
  CHECK(cluster_size(60, true) == 4);
  CHECK(cluster_size(58, true) == 1);
  CHECK(cluster_size(60, false) == 1);
}

// FNV-1a.
class Digest {
 public:
  void add(uint64_t value) {
    for (int i = 0; i < 8; ++i) state_ = (state_ ^ (value >> 8 * i & 0xff)) * 0x100000001b3;
  }
  void add(const Piece& piece) {
    for (const uint64_t value :
         {reinterpret_cast<uint64_t>(piece.values), piece.bytes, uint64_t{piece.rings}, uint64_t{piece.slots}})
      add(value);
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325;
};

uint64_t digest_of(Operation operation) {
  Digest digest;
  for (const ncast_dtype dtype : {NCAST_INT8, NCAST_BFLOAT16, NCAST_FLOAT64}) {
    for (const ncast_codec codec : {NCAST_CODEC_RAW, NCAST_CODEC_WINDOW}) {
      for (int ranks = 2; ranks <= 8; ++ranks) {
        for (const uint32_t max_ctas : {1u, 7u, 16u, 53u, 64u}) {
          for (uint64_t count = 1; count < uint64_t{1} << 31; count = count * 5 / 2 + 1) {
            const int root = static_cast<int>(count % static_cast<uint64_t>(ranks));
            for (const bool in_place : {false, true}) {
              const Launched launch = launched(operation, dtype, codec, ranks, root, count, max_ctas, in_place);
              for (int rank = 0; rank < ranks; ++rank) {
                const BlockCall& call = launch.calls[static_cast<size_t>(rank)];
                digest.add(launch.ctas[static_cast<size_t>(rank)]);
                for (int peer = 0; peer < ranks; ++peer) {
                  digest.add(call.send[peer]);
                  digest.add(call.recv[peer]);
                }
                digest.add(call.own);
                digest.add(call.reduced);
                for (const uint32_t value : {call.turns.rings, call.turns.slots, call.turns.count, call.forward,
                                             call.relayed, call.first_forward_ring})
                  digest.add(value);
                digest.add(call.local_copy.bytes);
              }
            }
          }
        }
      }
    }
  }
  return digest.value();
}

const std::pair<Operation, uint64_t> digests[] = {
    {Operation::broadcast, 0x803717c4bb222ba9},    {Operation::reduce, 0xafc84f46bdbbcd31},
    {Operation::gather, 0x06c0f2923c4db2b9},       {Operation::scatter, 0x56478ad60989cd25},
    {Operation::all_gather, 0x2e975981818590d1},   {Operation::all_to_all, 0x5ddbb96ec1442595},
    {Operation::all_to_all_v, 0x0e1dbc8db86d8179}, {Operation::reduce_scatter, 0x111575ac78cc8d09},
    {Operation::all_reduce, 0xdb3d20ccf06d60c1},
};

TEST_CASE("the pieces of all collectives are unchanged") {
  for (const auto& [operation, expected] : digests) {
    CAPTURE(function_name(operation));
    CHECK(digest_of(operation) == expected);
  }
}

struct MessageRow {
  std::vector<uint64_t> bytes;  // size of the message to each peer
  ncast_codec codec;
  uint32_t max_ctas, kernels;  // `kernels` concurrent kernels share max_ctas
  uint32_t ctas;               // expected
};
constexpr uint64_t GiB = uint64_t{1} << 30;
const MessageRow message_rows[] = {
    {{1}, raw, 64, 1, 1},
    {{100000}, raw, 64, 1, 25},
    {{100000}, window, 64, 2, 13},
    {{GiB}, raw, 64, 1, 64},
    {{GiB}, window, 64, 3, 21},
    {{GiB}, window, 1, 4, 1},
    {{10000, 10000000, 1, GiB}, raw, 64, 1, 64},
    {{10000, 10000000, 1, GiB}, window, 16, 2, 8},
    {{GiB, GiB, GiB, GiB, GiB, GiB, GiB}, window, 57, 7, 14},
    {{1, 1, 1, 1, 1, 1, GiB}, window, 1, 4, 2},
    {{1, 1, 1, 1, 1, 1, GiB}, window, 2, 1, 2},
};

// The CTAs of a kernel that sends messages of these sizes to consecutive peers.
uint32_t ctas_of_messages(const std::vector<uint64_t>& bytes, ncast_codec codec, uint32_t max_ctas, uint32_t kernels) {
  const int ranks = static_cast<int>(bytes.size()) + 1;
  Call call{Operation::send};
  call.dtype = codec == NCAST_CODEC_RAW ? NCAST_INT8 : NCAST_FLOAT64;
  const Rings rings = rings_for(call, codec, ranks, max_ctas);
  BlockCall kernel = {};
  kernel.peers.ranks = ranks;
  kernel.is_point_to_point = true;
  for (size_t i = 0; i < bytes.size(); ++i) kernel.send[i + 1] = rings.piece(send_begin, bytes[i]);
  return rings.grid(kernel, kernels).ctas;
}

TEST_CASE("messages are launched in the shapes that the cost model was measured with") {
  for (const MessageRow& row : message_rows) {
    CAPTURE(row.bytes.size());
    CAPTURE(row.max_ctas);
    CAPTURE(row.kernels);
    CHECK(ctas_of_messages(row.bytes, row.codec, row.max_ctas, row.kernels) == row.ctas);
  }
}

}  // namespace
}  // namespace narrowcast::executor::cuda
