// Communicators of ranks that can already exchange bytes.
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "narrowcast/comm.h"
#include "support/last_error.h"
#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

// An all-gather between threads, in place of that of another library.
class ThreadGather {
 public:
  explicit ThreadGather(size_t ranks) : ranks_(ranks) {}

  struct Rank {
    ThreadGather* gather;
    size_t rank;
    int error = 0;
  };
  static int exchange(void* context, const void* mine, size_t bytes, void* all) {
    const auto* rank = static_cast<Rank*>(context);
    return rank->error != 0 ? rank->error : rank->gather->run(rank->rank, mine, bytes, all);
  }

 private:
  int run(size_t rank, const void* mine, size_t bytes, void* all) {
    std::unique_lock lock(mutex_);
    blobs_.resize(ranks_ * bytes);
    std::memcpy(&blobs_[rank * bytes], mine, bytes);
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return arrived_ == ranks_; });
    std::memcpy(all, blobs_.data(), blobs_.size());
    return 0;
  }

  const size_t ranks_;
  size_t arrived_ = 0;
  std::vector<char> blobs_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

TEST_CASE("ranks that can exchange bytes need no unique id") {
  const TimeLimit limit;
  ThreadGather gather(3);
  run_threads(3, [&](int rank) {
    ThreadGather::Rank context = {&gather, static_cast<size_t>(rank)};
    ncast_comm* comm = nullptr;
    EXPECT_OK(ncast_comm_create_by_exchange(&comm, 3, rank, ThreadGather::exchange, &context, nullptr));
    const float mine = static_cast<float>(rank + 1);
    float sum = 0;
    EXPECT_OK(ncast_all_reduce(&mine, &sum, 1, NCAST_FLOAT32, NCAST_SUM, NCAST_CODEC_RAW, comm, nullptr));
    EXPECT(sum == 6);
    EXPECT_OK(ncast_comm_destroy(comm));
  });
}

TEST_CASE("a failed exchange is reported with its return value") {
  ThreadGather gather(1);
  ThreadGather::Rank context = {&gather, 0, 42};
  ncast_comm* comm = nullptr;
  CHECK(ncast_comm_create_by_exchange(&comm, 2, 1, ThreadGather::exchange, &context, nullptr) == NCAST_REMOTE_ERROR);
  CHECK(error_contains("returned 42"));
  CHECK(comm == nullptr);
}

TEST_CASE("a rejected rank takes part in the exchange, so the others do not wait for it") {
  // Rank 2 is rejected by a check that only the backend makes.
  for (const int rejected : {0, 1, 2}) {
    const TimeLimit limit;
    ThreadGather gather(3);
    run_threads(3, [&](int rank) {
      ThreadGather::Rank context = {&gather, static_cast<size_t>(rank)};
      ncast_comm_config config;
      ncast_comm_config_init(&config);
      config.timeout_seconds = rank == rejected && rank != 2 ? -1 : 0;
      if (rank == rejected && rank == 2) config.scratch_bytes = 1;
      ncast_comm* comm = nullptr;
      const ncast_status status =
          ncast_comm_create_by_exchange(&comm, 3, rank, ThreadGather::exchange, &context, &config);
      EXPECT(status == (rank == rejected ? NCAST_INVALID_ARGUMENT : NCAST_REMOTE_ERROR));
      EXPECT(error_contains(rejected == 2 ? "scratch_bytes is 1, but 3 ranks need" : "timeout_seconds is -1"));
      EXPECT(error_contains("rank " + std::to_string(rejected) + " cannot create the communicator") ==
             (rank != rejected));
      EXPECT(comm == nullptr);
    });
  }
}

TEST_CASE("invalid arguments of a creation by exchange are rejected") {
  ThreadGather gather(1);
  ThreadGather::Rank context = {&gather, 0, 42};
  ncast_comm* comm = nullptr;
  CHECK(ncast_comm_create_by_exchange(&comm, 2, 0, nullptr, &context, nullptr) == NCAST_INVALID_ARGUMENT);
  CHECK(ncast_comm_create_by_exchange(nullptr, 2, 0, ThreadGather::exchange, &context, nullptr) ==
        NCAST_INVALID_ARGUMENT);
  for (const auto& [ranks, rank] : {std::pair(2, 2), std::pair(2, -1), std::pair(0, 0)})
    CHECK(ncast_comm_create_by_exchange(&comm, ranks, rank, ThreadGather::exchange, &context, nullptr) ==
          NCAST_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace narrowcast::testing
