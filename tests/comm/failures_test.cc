// Calls that cannot complete end soon, with an error that says why.
#include <atomic>
#include <thread>
#include <vector>

#include "failing.h"

namespace narrowcast::testing {
namespace {

// Checks that the communicator reports its error and that calls fail.
void expect_in_error(ncast_comm* comm, ncast_status status) {
  char message[400];
  EXPECT(ncast_comm_async_error(comm, message, sizeof message) == status);
  EXPECT(message[0] != 0);
  EXPECT(reduce_one(comm) == status);
}

TEST_CASE("if a rank is killed, the others fail with its name") {
  constexpr int ranks = 4;
  const ncast_unique_id id = new_id();
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    pids.push_back(start_process([&, rank] {
      ncast_comm* comm = nullptr;
      EXPECT_OK(ncast_comm_create(&comm, ranks, &id, rank, nullptr));
      EXPECT_OK(reduce_one(comm));
      EXPECT(write(ready[1], "x", 1) == 1);
      if (rank == 2) pause();
      const auto start = Clock::now();
      EXPECT(reduce_one(comm) == NCAST_REMOTE_ERROR);
      EXPECT(seconds_since(start) < 5);
      EXPECT(error_contains("rank 2 (pid "));
      expect_in_error(comm, NCAST_REMOTE_ERROR);
      EXPECT_OK(ncast_comm_destroy(comm));
    }));
  }
  char byte;
  for (int rank = 0; rank < ranks; ++rank) REQUIRE(read(ready[0], &byte, 1) == 1);
  usleep(100000);
  kill(pids[2], SIGKILL);  // do not wait for it yet: a zombie must count as dead
  for (const int rank : {0, 1, 3}) CHECK(wait_for_process(pids[static_cast<size_t>(rank)]) == 0);
  CHECK(wait_for_process(pids[2]) == -SIGKILL);
  close(ready[0]);
  close(ready[1]);
}

TEST_CASE("if a rank is killed inside a call, ranks that do not wait for it fail, too") {
  constexpr int ranks = 3;
  const ncast_unique_id id = new_id();
  run_processes(ranks, [&](int rank) {
    Comm comm(id, rank, ranks);
    int32_t value = 0;
    if (rank == 2) {
      alarm(0);
      if (fork() == 0) {
        usleep(300000);
        kill(getppid(), SIGTERM);
        _exit(0);
      }
      signal(SIGTERM, [](int) { _exit(0); });  // ends without destroying anything
      static_cast<void>(ncast_recv(&value, 1, NCAST_INT32, 1, NCAST_CODEC_RAW, comm, nullptr));
      pause();
    }
    // Ranks 0 and 1 wait for each other indefinitely.
    EXPECT(ncast_recv(&value, 1, NCAST_INT32, 1 - rank, NCAST_CODEC_RAW, comm, nullptr) == NCAST_REMOTE_ERROR);
    EXPECT(error_contains("rank 2 (pid "));
  });
}

TEST_CASE("waiting for a rank that has left fails") {
  for (const int leaver : {0, 1}) {
    const ncast_unique_id id = new_id();
    run_processes(2, [&](int rank) {
      Comm comm(id, rank, 2);
      int32_t value = 7;
      if (rank == leaver) {
        // A message that was sent before leaving is still received.
        EXPECT_OK(ncast_send(&value, 1, NCAST_INT32, 1 - leaver, NCAST_CODEC_RAW, comm, nullptr));
        return;
      }
      value = 0;
      EXPECT_OK(ncast_recv(&value, 1, NCAST_INT32, leaver, NCAST_CODEC_RAW, comm, nullptr));
      EXPECT(value == 7);
      EXPECT(ncast_recv(&value, 1, NCAST_INT32, leaver, NCAST_CODEC_RAW, comm, nullptr) == NCAST_REMOTE_ERROR);
      EXPECT(error_contains(leaver == 0 ? "rank 0 (pid " : "rank 1 (pid "));
      EXPECT(error_contains("destroyed its communicator"));
    });
  }
}

TEST_CASE("an abort from another thread ends waiting calls on every rank") {
  constexpr int ranks = 3;
  const ncast_unique_id id = new_id();
  run_processes(ranks, [&](int rank) {
    Comm comm(id, rank, ranks);
    const auto start = Clock::now();
    std::thread aborter([&] {
      usleep(200000);
      if (rank == 0) EXPECT_OK(ncast_comm_abort(comm));
    });
    // Rank 2 makes no call, so the others wait.
    if (rank != 2) {
      EXPECT(reduce_one(comm) == NCAST_ABORTED);
      EXPECT(seconds_since(start) < 5);
      EXPECT(error_contains("rank 0 aborted"));
    } else {
      while (ncast_comm_async_error(comm, nullptr, 0) == NCAST_OK) usleep(10000);
    }
    aborter.join();
    expect_in_error(comm, NCAST_ABORTED);
  });
}

TEST_CASE("an abort ends calls on streams") {
  const ncast_unique_id id = new_id();
  run_processes(2, [&](int rank) {
    Comm comm(id, rank, 2);
    if (rank == 1) {
      while (ncast_comm_async_error(comm, nullptr, 0) == NCAST_OK) usleep(10000);
      return;
    }
    ncast_stream stream;
    EXPECT_OK(ncast_stream_create(&stream));
    float value = 1;
    for (int i = 0; i < 3; ++i) {
      EXPECT_OK(ncast_all_reduce(&value, &value, 1, NCAST_FLOAT32, NCAST_SUM, NCAST_CODEC_RAW, comm, stream));
    }
    EXPECT_OK(ncast_comm_abort(comm));
    EXPECT(ncast_stream_synchronize(stream) == NCAST_ABORTED);
    EXPECT_OK(ncast_stream_synchronize(stream));  // the error is reported once
    expect_in_error(comm, NCAST_ABORTED);
    EXPECT_OK(ncast_stream_destroy(stream));
  });
}

// A call can return, and its communicator be destroyed, before the abort that ended the call has returned.
TEST_CASE("destroy waits for the abort that ended the calls") {
  constexpr int rounds = 30;
  constexpr int ranks = 8;  // an abort notifies the ranks one after the other, which takes some time
  std::vector<ncast_unique_id> ids;
  for (int round = 0; round < rounds; ++round) ids.push_back(new_id());
  run_processes(ranks, [&](int rank) {
    for (const ncast_unique_id& id : ids) {
      Comm comm(id, rank, ranks);
      std::atomic<bool> waits{false};
      std::thread aborter([&, handle = static_cast<ncast_comm*>(comm)] {
        while (!waits) std::this_thread::yield();
        usleep(1000);
        if (rank == 0) EXPECT_OK(ncast_comm_abort(handle));
      });
      float value = 0;
      waits = true;
      EXPECT(ncast_recv(&value, 1, NCAST_FLOAT32, (rank + 1) % ranks, NCAST_CODEC_RAW, comm, nullptr) == NCAST_ABORTED);
      comm.destroy();
      aborter.join();
    }
  });
}

TEST_CASE("an abort ends the calls that destroy waits for") {
  const ncast_unique_id id = new_id();
  run_processes(2, [&](int rank) {
    Comm comm(id, rank, 2);
    if (rank == 1) {
      while (ncast_comm_async_error(comm, nullptr, 0) == NCAST_OK) usleep(10000);
      return;
    }
    ncast_stream stream;
    EXPECT_OK(ncast_stream_create(&stream));
    float value = 1;
    EXPECT_OK(ncast_recv(&value, 1, NCAST_FLOAT32, 1, NCAST_CODEC_RAW, comm, stream));
    ncast_comm* const handle = comm;
    std::thread aborter([handle, stream] {
      // The destruction has begun when other functions are rejected.
      while (ncast_comm_async_error(handle, nullptr, 0) == NCAST_OK) usleep(1000);
      EXPECT(error_contains("is being destroyed"));
      float other = 1;
      EXPECT(ncast_recv(&other, 1, NCAST_FLOAT32, 1, NCAST_CODEC_RAW, handle, stream) == NCAST_INVALID_ARGUMENT);
      EXPECT(ncast_comm_destroy(handle) == NCAST_INVALID_ARGUMENT);
      EXPECT_OK(ncast_comm_abort(handle));
    });
    const auto start = Clock::now();
    comm.destroy();
    EXPECT(seconds_since(start) < 5);
    aborter.join();
    EXPECT(ncast_stream_synchronize(stream) == NCAST_ABORTED);
    EXPECT_OK(ncast_stream_destroy(stream));
  });
}

// A child that exits normally destroys its copies, whatever its parent is doing.
TEST_CASE("a forked child that destroys its copies does not affect the ranks") {
  const ncast_unique_id id = new_id();
  int ended[2];
  REQUIRE(pipe(ended) == 0);
  run_processes(2, [&](int rank) {
    Comm comm(id, rank, 2);
    const float sent = 7;
    if (rank == 1) {
      char byte;
      EXPECT(read(ended[0], &byte, 1) == 1);
      for (int i = 0; i < 2; ++i) EXPECT_OK(ncast_send(&sent, 1, NCAST_FLOAT32, 0, NCAST_CODEC_RAW, comm, nullptr));
      EXPECT_OK(reduce_one(comm));
      return;
    }
    ncast_stream stream;
    EXPECT_OK(ncast_stream_create(&stream));
    float received[2] = {};
    EXPECT_OK(ncast_recv(&received[0], 1, NCAST_FLOAT32, 1, NCAST_CODEC_RAW, comm, stream));
    std::thread receiver(
        [&] { EXPECT_OK(ncast_recv(&received[1], 1, NCAST_FLOAT32, 1, NCAST_CODEC_RAW, comm, nullptr)); });
    usleep(100000);
    const pid_t child = start_process([&] {
      EXPECT(reduce_one(comm) == NCAST_UNSUPPORTED);
      EXPECT(error_contains("this process was forked from the one that created comm 0x"));
      EXPECT(ncast_comm_abort(comm) == NCAST_UNSUPPORTED);
      EXPECT(ncast_stream_synchronize(stream) == NCAST_INVALID_ARGUMENT);
      EXPECT_OK(ncast_stream_destroy(stream));
      comm.destroy();
      // The child can use communicators that it creates itself.
      Comm own(new_id(), 0, 1);
      EXPECT_OK(reduce_one(own));
    });
    EXPECT(wait_for_process(child) == 0);
    EXPECT(write(ended[1], "x", 1) == 1);
    receiver.join();
    EXPECT_OK(ncast_stream_synchronize(stream));
    EXPECT(received[0] == sent);
    EXPECT(received[1] == sent);
    EXPECT_OK(reduce_one(comm));
    EXPECT_OK(ncast_stream_destroy(stream));
  });
  close(ended[0]);
  close(ended[1]);
}

TEST_CASE("a destroyed communicator is rejected") {
  Comm comm(new_id(), 0, 1);
  ncast_comm* const handle = comm;
  const float value = 1;
  EXPECT_OK(ncast_group_start());
  EXPECT_OK(ncast_send(&value, 1, NCAST_FLOAT32, 0, NCAST_CODEC_RAW, handle, nullptr));
  std::thread([&] { comm.destroy(); }).join();
  CHECK(ncast_group_end() == NCAST_INVALID_ARGUMENT);
  CHECK(error_contains("ncast_group_end: comm 0x"));
  CHECK(reduce_one(handle) == NCAST_INVALID_ARGUMENT);
  CHECK(error_contains("ncast_all_reduce: comm 0x"));
  CHECK(error_contains("is not a communicator or has been destroyed"));
  CHECK(ncast_comm_abort(handle) == NCAST_INVALID_ARGUMENT);
  CHECK(ncast_comm_async_error(handle, nullptr, 0) == NCAST_INVALID_ARGUMENT);
  CHECK(ncast_comm_destroy(handle) == NCAST_INVALID_ARGUMENT);
}

TEST_CASE("every rank that waits for a missing rank times out, and the error names the missing rank") {
  constexpr int ranks = 4;
  const ncast_unique_id id = new_id();
  run_processes(ranks, [&](int rank) {
    Comm comm(id, rank, ranks, {rank == 0 ? 0.5 : 40});
    if (rank == ranks - 1) {
      while (ncast_comm_async_error(comm, nullptr, 0) == NCAST_OK) usleep(10000);
    } else {
      const auto start = Clock::now();
      EXPECT(reduce_one(comm) == NCAST_TIMEOUT);
      EXPECT((rank != 0 || seconds_since(start) > 0.4));
    }
    expect_in_error(comm, NCAST_TIMEOUT);
    EXPECT(error_contains("for rank 3 (pid "));
    EXPECT(error_contains("rank 0 reports: ") == (rank != 0));
  });
}

TEST_CASE("calls do not use the time limit of the creation") {
  const ncast_unique_id id = new_id();
  run_processes(2, [&](int rank) {
    ncast_comm_config config;
    ncast_comm_config_init(&config);
    config.timeout_seconds = 0.5;
    config.create_timeout_seconds = 40;
    ncast_comm* comm = nullptr;
    EXPECT_OK(ncast_comm_create(&comm, 2, &id, rank, &config));
    if (rank == 0) {
      EXPECT(reduce_one(comm) == NCAST_TIMEOUT);
      EXPECT(error_contains("rank 0 waited 0.5 s for rank 1"));
    }
    while (ncast_comm_async_error(comm, nullptr, 0) == NCAST_OK) usleep(10000);
    EXPECT_OK(ncast_comm_destroy(comm));
  });
}

TEST_CASE("a failure of one communicator does not affect another") {
  const ncast_unique_id ids[] = {new_id(), new_id()};
  run_processes(2, [&](int rank) {
    Comm first(ids[0], rank, 2);
    Comm second(ids[1], rank, 2);
    EXPECT_OK(ncast_comm_abort(first));
    EXPECT(reduce_one(first) == NCAST_ABORTED);
    // Except in one group: none of its calls runs.
    const float sent = 1;
    float sum = 0;
    EXPECT_OK(ncast_group_start());
    EXPECT_OK(ncast_all_reduce(&sent, &sum, 1, NCAST_FLOAT32, NCAST_SUM, NCAST_CODEC_RAW, second, nullptr));
    EXPECT_OK(reduce_one(first));
    EXPECT(ncast_group_end() == NCAST_ABORTED);
    EXPECT(sum == 0);
    EXPECT_OK(reduce_one(second));
  });
}

}  // namespace
}  // namespace narrowcast::testing
