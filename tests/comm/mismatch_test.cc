// Ranks that disagree about a call get NCAST_MISMATCH.
#include <functional>
#include <string>

#include "failing.h"

namespace narrowcast::testing {
namespace {

using RankCall = std::function<ncast_status(int rank, ncast_comm* comm)>;

// Checks that the calls of all ranks return MISMATCH with a message that names `difference`.
void check_mismatch(const std::string& difference, const RankCall& call, int ranks = 2) {
  CAPTURE(difference);
  const ncast_unique_id id = new_id();
  run_processes(ranks, [&](int rank) {
    Comm comm(id, rank, ranks);
    EXPECT(call(rank, comm) == NCAST_MISMATCH);
    EXPECT(error_contains("differ in " + difference));
    EXPECT(reduce_one(comm) == NCAST_MISMATCH);
  });
}

// As above, except that a send may succeed. The error is then reported asynchronously and by the sender's next call.
void check_send_mismatch(const std::string& difference, const RankCall& call) {
  CAPTURE(difference);
  const ncast_unique_id id = new_id();
  run_processes(2, [&](int rank) {
    Comm comm(id, rank, 2);
    const auto start = Clock::now();
    ncast_status status = call(rank, comm);
    while (status == NCAST_OK && seconds_since(start) < 5) {
      usleep(10000);
      status = ncast_comm_async_error(comm, nullptr, 0);
    }
    EXPECT(status == NCAST_MISMATCH);
    EXPECT(error_contains("differ in " + difference));
    EXPECT(reduce_one(comm) == NCAST_MISMATCH);
  });
}

TEST_CASE("AMismatchNamesTheDifference") {
  static float in[8];
  static float out[8];
  check_mismatch("count", [](int rank, ncast_comm* comm) {
    return ncast_all_reduce(in, out, rank == 0 ? 4 : 5, NCAST_FLOAT32, NCAST_SUM, NCAST_CODEC_RAW, comm, nullptr);
  });
  check_mismatch("count", [](int rank, ncast_comm* comm) {
    return ncast_all_reduce(in, out, rank == 0 ? 0 : 5, NCAST_FLOAT32, NCAST_SUM, NCAST_CODEC_RAW, comm, nullptr);
  });
  check_mismatch("dtype", [](int rank, ncast_comm* comm) {
    return ncast_all_gather(in, out, 2, rank == 0 ? NCAST_FLOAT32 : NCAST_INT32, NCAST_CODEC_RAW, comm, nullptr);
  });
  check_mismatch("op", [](int rank, ncast_comm* comm) {
    return ncast_reduce_scatter(in, out, 2, NCAST_FLOAT32, rank == 0 ? NCAST_SUM : NCAST_AVG, NCAST_CODEC_RAW, comm,
                                nullptr);
  });
  check_mismatch("codec", [](int rank, ncast_comm* comm) {
    return ncast_all_to_all(in, out, 2, NCAST_FLOAT32, rank == 0 ? NCAST_CODEC_RAW : NCAST_CODEC_WINDOW, comm, nullptr);
  });
  check_mismatch("operation", [](int rank, ncast_comm* comm) {
    if (rank == 0) return ncast_all_gather(in, out, 2, NCAST_FLOAT32, NCAST_CODEC_RAW, comm, nullptr);
    return ncast_all_to_all(in, out, 2, NCAST_FLOAT32, NCAST_CODEC_RAW, comm, nullptr);
  });
  // Each rank waits for the other, so no data arrives that would show the difference.
  check_mismatch("root", [](int rank, ncast_comm* comm) {
    return ncast_broadcast(in, out, 2, NCAST_FLOAT32, 1 - rank, NCAST_CODEC_RAW, comm, nullptr);
  });
  check_mismatch("root", [](int rank, ncast_comm* comm) {
    return ncast_reduce(in, out, 2, NCAST_FLOAT32, NCAST_SUM, rank, NCAST_CODEC_RAW, comm, nullptr);
  });
  check_mismatch("op", [](int rank, ncast_comm* comm) {
    return ncast_reduce(in, out, 2, NCAST_FLOAT32, rank == 0 ? NCAST_SUM : NCAST_MAX, 1, NCAST_CODEC_RAW, comm,
                        nullptr);
  });
  check_mismatch("count", [](int rank, ncast_comm* comm) {
    return ncast_gather(in, out, rank == 0 ? 2 : 0, NCAST_FLOAT32, 0, NCAST_CODEC_RAW, comm, nullptr);
  });
  check_mismatch("operation, root", [](int rank, ncast_comm* comm) {
    if (rank == 0) return ncast_gather(in, out, 2, NCAST_FLOAT32, 0, NCAST_CODEC_RAW, comm, nullptr);
    return ncast_scatter(in, out, 2, NCAST_FLOAT32, 1, NCAST_CODEC_RAW, comm, nullptr);
  });
  check_mismatch("codec", [](int rank, ncast_comm* comm) {
    return ncast_scatter(in, out, 2, NCAST_FLOAT32, 1, rank == 0 ? NCAST_CODEC_AUTO : NCAST_CODEC_RAW, comm, nullptr);
  });
  check_mismatch("count", [](int rank, ncast_comm* comm) {
    // Rank 0 sends one more value than rank 1 expects.
    const uint64_t send_counts[] = {1, rank == 0 ? 3u : 2u};
    const uint64_t recv_counts[] = {1, 2};
    const uint64_t own_counts[] = {2, 1};
    const uint64_t offsets[] = {0, 3};
    return ncast_all_to_all_v(in, rank == 0 ? send_counts : own_counts, offsets, out,
                              rank == 0 ? recv_counts : own_counts, offsets, NCAST_FLOAT32, NCAST_CODEC_RAW, comm,
                              nullptr);
  });
  check_mismatch("dtype", [](int rank, ncast_comm* comm) {
    const uint64_t counts[] = {0, 0};
    return ncast_all_to_all_v(in, counts, counts, out, counts, counts, rank == 0 ? NCAST_INT32 : NCAST_UINT32,
                              NCAST_CODEC_RAW, comm, nullptr);
  });
}

TEST_CASE("ARankThatOnlySendsGetsAMismatchToo") {
  static float in[8];
  static float out[8];
  // Every rank is a root, so none receives.
  check_mismatch("root", [](int rank, ncast_comm* comm) {
    return ncast_broadcast(in, out, 2, NCAST_FLOAT32, rank, NCAST_CODEC_RAW, comm, nullptr);
  });
  check_mismatch("root", [](int rank, ncast_comm* comm) {
    return ncast_scatter(in, out, 2, NCAST_FLOAT32, rank, NCAST_CODEC_RAW, comm, nullptr);
  });
  check_mismatch("root", [](int rank, ncast_comm* comm) {
    return ncast_reduce(in, out, 2, NCAST_FLOAT32, NCAST_SUM, 1 - rank, NCAST_CODEC_RAW, comm, nullptr);
  });
  check_mismatch("operation", [](int rank, ncast_comm* comm) {
    if (rank == 1) return reduce_one(comm);
    return ncast_broadcast(in, out, 1, NCAST_FLOAT32, 0, NCAST_CODEC_RAW, comm, nullptr);
  });
  check_mismatch("operation", [](int rank, ncast_comm* comm) {
    if (rank == 0) return ncast_all_gather(in, out, 1, NCAST_FLOAT32, NCAST_CODEC_RAW, comm, nullptr);
    return ncast_gather(in, out, 1, NCAST_FLOAT32, 0, NCAST_CODEC_RAW, comm, nullptr);
  });
  // One rank has made one call more than the other.
  check_mismatch("operation", [](int rank, ncast_comm* comm) {
    if (rank == 0) {
      if (ncast_status status = ncast_broadcast(in, out, 1, NCAST_FLOAT32, 0, NCAST_CODEC_RAW, comm, nullptr))
        return status;
    }
    return ncast_all_gather(in, out, 1, NCAST_FLOAT32, NCAST_CODEC_RAW, comm, nullptr);
  });
}

TEST_CASE("RanksWhoseCallsAgreeGetAMismatchIfAThirdRankDisagrees") {
  static float in[8];
  static float out[8];
  // Ranks 0 and 1 agree and exchange no data with rank 2.
  check_mismatch(
      "count",
      [](int rank, ncast_comm* comm) {
        return ncast_gather(in, out, rank == 2 ? 1 : 2, NCAST_FLOAT32, 0, NCAST_CODEC_RAW, comm, nullptr);
      },
      3);
  check_mismatch(
      "root",
      [](int rank, ncast_comm* comm) {
        return ncast_broadcast(in, out, 2, NCAST_FLOAT32, rank == 2 ? 2 : 0, NCAST_CODEC_RAW, comm, nullptr);
      },
      3);
  check_mismatch(
      "dtype",
      [](int rank, ncast_comm* comm) {
        return ncast_scatter(in, out, 2, rank == 2 ? NCAST_INT32 : NCAST_FLOAT32, 1, NCAST_CODEC_RAW, comm, nullptr);
      },
      3);
  // Rank 0 sends rank 2 more values than rank 2 expects.
  check_mismatch(
      "count",
      [](int rank, ncast_comm* comm) {
        const uint64_t send_counts[] = {1, 1, rank == 0 ? 2u : 1u};
        const uint64_t recv_counts[] = {1, 1, 1};
        const uint64_t offsets[] = {0, 2, 4};
        return ncast_all_to_all_v(in, send_counts, offsets, out, recv_counts, offsets, NCAST_FLOAT32, NCAST_CODEC_RAW,
                                  comm, nullptr);
      },
      3);
}

TEST_CASE("ASendThatDiffersFromItsReceiveIsAMismatchOnBothRanks") {
  static float in[8];
  static float out[8];
  check_send_mismatch("count", [](int rank, ncast_comm* comm) {
    if (rank == 0) return ncast_send(in, 3, NCAST_FLOAT32, 1, NCAST_CODEC_RAW, comm, nullptr);
    return ncast_recv(out, 4, NCAST_FLOAT32, 0, NCAST_CODEC_RAW, comm, nullptr);
  });
  check_send_mismatch("operation", [](int rank, ncast_comm* comm) {
    if (rank == 0) return ncast_send(in, 1, NCAST_FLOAT32, 1, NCAST_CODEC_RAW, comm, nullptr);
    return reduce_one(comm);
  });
}

}  // namespace
}  // namespace narrowcast::testing
