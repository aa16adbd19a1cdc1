// Ranks that disagree about a call get NCAST_MISMATCH.
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "failing.h"
#include "narrowcast/reduction.h"
#include "support/codec_table.h"

namespace narrowcast::testing {
namespace {

float in[8], out[8];

// The call of a rank, of which each test changes some arguments.
struct Asked {
  ncast_operation operation;
  uint64_t count = 2;
  ncast_dtype dtype = NCAST_FLOAT32;
  ncast_redop op = NCAST_SUM;
  int root = 0;  // or the peer
  ncast_codec codec = NCAST_CODEC_RAW;
};

ncast_status call(const Asked& asked, ncast_comm* comm) {
  const auto& [operation, count, dtype, op, root, codec] = asked;
  switch (operation) {
    case NCAST_OP_SEND: return ncast_send(in, count, dtype, root, codec, comm, nullptr);
    case NCAST_OP_RECV: return ncast_recv(out, count, dtype, root, codec, comm, nullptr);
    case NCAST_OP_BROADCAST: return ncast_broadcast(in, out, count, dtype, root, codec, comm, nullptr);
    case NCAST_OP_REDUCE: return ncast_reduce(in, out, count, dtype, op, root, codec, comm, nullptr);
    case NCAST_OP_GATHER: return ncast_gather(in, out, count, dtype, root, codec, comm, nullptr);
    case NCAST_OP_SCATTER: return ncast_scatter(in, out, count, dtype, root, codec, comm, nullptr);
    case NCAST_OP_ALL_GATHER: return ncast_all_gather(in, out, count, dtype, codec, comm, nullptr);
    case NCAST_OP_ALL_TO_ALL: return ncast_all_to_all(in, out, count, dtype, codec, comm, nullptr);
    case NCAST_OP_REDUCE_SCATTER: return ncast_reduce_scatter(in, out, count, dtype, op, codec, comm, nullptr);
    default: return ncast_all_reduce(in, out, count, dtype, op, codec, comm, nullptr);
  }
}

using RankCall = std::function<ncast_status(int rank, ncast_comm* comm)>;

// Checks that the calls of all ranks return MISMATCH with a message that names `difference`.
void check_mismatch(const std::string& difference, int ranks, const RankCall& call_of) {
  CAPTURE(difference);
  const ncast_unique_id id = new_id();
  run_processes(ranks, [&](int rank) {
    Comm comm(id, rank, ranks);
    EXPECT(call_of(rank, comm) == NCAST_MISMATCH);
    EXPECT(error_contains("differ in " + difference));
    EXPECT(reduce_one(comm) == NCAST_MISMATCH);
  });
}
void check_mismatch(const std::string& difference, const std::vector<Asked>& asked) {
  check_mismatch(difference, static_cast<int>(asked.size()),
                 [&](int rank, ncast_comm* comm) { return call(asked[static_cast<size_t>(rank)], comm); });
}

// As above, except that a send may succeed. The error is then reported asynchronously and by the sender's next call.
void check_send_mismatch(const std::string& difference, const std::array<Asked, 2>& asked) {
  CAPTURE(difference);
  const ncast_unique_id id = new_id();
  run_processes(2, [&](int rank) {
    Comm comm(id, rank, 2);
    const auto start = Clock::now();
    ncast_status status = call(asked[static_cast<size_t>(rank)], comm);
    while (status == NCAST_OK && seconds_since(start) < 5) {
      usleep(10000);
      status = ncast_comm_async_error(comm, nullptr, 0);
    }
    EXPECT(status == NCAST_MISMATCH);
    EXPECT(error_contains("differ in " + difference));
    EXPECT(reduce_one(comm) == NCAST_MISMATCH);
  });
}

TEST_CASE("a mismatch names the difference") {
  check_mismatch("count", {{NCAST_OP_ALL_REDUCE, 4}, {NCAST_OP_ALL_REDUCE, 5}});
  check_mismatch("count", {{NCAST_OP_ALL_REDUCE, 0}, {NCAST_OP_ALL_REDUCE, 5}});
  check_mismatch("count", {{NCAST_OP_GATHER, 2}, {NCAST_OP_GATHER, 0}});
  check_mismatch("dtype", {{NCAST_OP_ALL_GATHER}, {.operation = NCAST_OP_ALL_GATHER, .dtype = NCAST_INT32}});
  check_mismatch("op", {{NCAST_OP_REDUCE_SCATTER}, {.operation = NCAST_OP_REDUCE_SCATTER, .op = NCAST_AVG}});
  check_mismatch("op", {{NCAST_OP_REDUCE}, {.operation = NCAST_OP_REDUCE, .op = NCAST_MAX}});
  check_mismatch("op", 2, [](int rank, ncast_comm* comm) {
    const double half = 0.5;
    const ncast_reduction_options options = {sizeof options, &half, nullptr, nullptr};
    return ncast_run_reduction(NCAST_OP_ALL_REDUCE, in, out, 2, NCAST_FLOAT32, NCAST_SUM, 0, NCAST_CODEC_RAW,
                               rank == 0 ? &options : nullptr, comm, nullptr);
  });
  check_mismatch("result_codec", 2, [](int rank, ncast_comm* comm) {
    const ncast_codec result = rank == 0 ? NCAST_CODEC_INT4 : NCAST_CODEC_INT6;
    const ncast_reduction_options options = {sizeof options, nullptr, nullptr, &result};
    return ncast_run_reduction(NCAST_OP_ALL_REDUCE, in, out, 2, NCAST_FLOAT32, NCAST_SUM, 0, NCAST_CODEC_INT8, &options,
                               comm, nullptr);
  });
  check_mismatch("codec", {{NCAST_OP_ALL_TO_ALL}, {.operation = NCAST_OP_ALL_TO_ALL, .codec = NCAST_CODEC_WINDOW}});
  // Both send raw values, but they agree only by chance.
  check_mismatch("codec", {{.operation = NCAST_OP_BROADCAST, .codec = NCAST_CODEC_WINDOW},
                           {.operation = NCAST_OP_BROADCAST, .codec = tests::forced(NCAST_CODEC_WINDOW)}});
  check_mismatch("codec", {{.operation = NCAST_OP_SCATTER, .root = 1, .codec = NCAST_CODEC_AUTO},
                           {.operation = NCAST_OP_SCATTER, .root = 1}});
  check_mismatch("operation", {{NCAST_OP_ALL_GATHER}, {NCAST_OP_ALL_TO_ALL}});
  check_mismatch("operation, root", {{NCAST_OP_GATHER}, {.operation = NCAST_OP_SCATTER, .root = 1}});
  // Each rank waits for the other, so no data arrives that would show the difference.
  check_mismatch("root", {{.operation = NCAST_OP_BROADCAST, .root = 1}, {NCAST_OP_BROADCAST}});
  check_mismatch("root", {{NCAST_OP_REDUCE}, {.operation = NCAST_OP_REDUCE, .root = 1}});
}

TEST_CASE("a rank that only sends gets a mismatch, too") {
  // Every rank is a root, so none receives.
  check_mismatch("root", {{NCAST_OP_BROADCAST}, {.operation = NCAST_OP_BROADCAST, .root = 1}});
  check_mismatch("root", {{NCAST_OP_SCATTER}, {.operation = NCAST_OP_SCATTER, .root = 1}});
  check_mismatch("root", {{.operation = NCAST_OP_REDUCE, .root = 1}, {NCAST_OP_REDUCE}});
  check_mismatch("operation", {{NCAST_OP_BROADCAST, 1}, {NCAST_OP_ALL_REDUCE, 1}});
  check_mismatch("operation", {{NCAST_OP_ALL_GATHER, 1}, {NCAST_OP_GATHER, 1}});
  // One rank has made one call more than the other.
  check_mismatch("operation", 2, [](int rank, ncast_comm* comm) {
    if (rank == 0)
      if (ncast_status status = call({NCAST_OP_BROADCAST}, comm)) return status;
    return call({NCAST_OP_ALL_GATHER}, comm);
  });
}

TEST_CASE("ranks whose calls agree get a mismatch if a third rank disagrees") {
  // Ranks 0 and 1 agree and exchange no data with rank 2.
  check_mismatch("count", {{NCAST_OP_GATHER}, {NCAST_OP_GATHER}, {NCAST_OP_GATHER, 1}});
  check_mismatch("root", {{NCAST_OP_BROADCAST}, {NCAST_OP_BROADCAST}, {.operation = NCAST_OP_BROADCAST, .root = 2}});
  check_mismatch("dtype", {{.operation = NCAST_OP_SCATTER, .root = 1},
                           {.operation = NCAST_OP_SCATTER, .root = 1},
                           {.operation = NCAST_OP_SCATTER, .dtype = NCAST_INT32, .root = 1}});
}

TEST_CASE("a difference between two ranks in all_to_all_v is a mismatch on all") {
  for (const int ranks : {2, 3}) {
    // Rank 0 sends the last rank more values than that expects.
    check_mismatch("count", ranks, [ranks](int rank, ncast_comm* comm) {
      uint64_t send_counts[] = {1, 1, 1}, recv_counts[] = {1, 1, 1}, offsets[] = {0, 2, 4};
      if (rank == 0) send_counts[ranks - 1] = 2;
      return ncast_all_to_all_v(in, send_counts, offsets, out, recv_counts, offsets, NCAST_FLOAT32, NCAST_CODEC_RAW,
                                comm, nullptr);
    });
  }
  check_mismatch("dtype", 2, [](int rank, ncast_comm* comm) {
    const uint64_t counts[] = {0, 0};
    return ncast_all_to_all_v(in, counts, counts, out, counts, counts, rank == 0 ? NCAST_INT32 : NCAST_UINT32,
                              NCAST_CODEC_RAW, comm, nullptr);
  });
}

TEST_CASE("a send that differs from its receive is a mismatch on both ranks") {
  check_send_mismatch("count", {{{.operation = NCAST_OP_SEND, .count = 3, .root = 1}, {NCAST_OP_RECV, 4}}});
  check_send_mismatch("operation", {{{.operation = NCAST_OP_SEND, .root = 1}, {NCAST_OP_ALL_REDUCE}}});
}

}  // namespace
}  // namespace narrowcast::testing
