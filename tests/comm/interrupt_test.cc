// ncast_set_interrupt_check ends the waits of its thread.
#include "narrowcast/interrupt.h"

#include <atomic>
#include <thread>

#include "failing.h"

namespace narrowcast::testing {
namespace {

// Interrupts this thread once, after a delay, at the second check or later.
class Interrupt {
 public:
  explicit Interrupt(double seconds) : seconds_(seconds) { ncast_set_interrupt_check(check, this); }
  ~Interrupt() { ncast_set_interrupt_check(nullptr, nullptr); }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

 private:
  static int check(void* context) {
    auto* const own = static_cast<Interrupt*>(context);
    ++own->checks_;
    if (own->done_ || own->checks_ < 2 || seconds_since(own->start_) < own->seconds_) return 0;
    own->done_ = true;
    return 1;
  }

  const Clock::time_point start_ = Clock::now();
  const double seconds_;
  bool done_ = false;
  int checks_ = 0;
};

TEST_CASE("an interrupted creation fails on all ranks") {
  const ncast_unique_id id = new_id();
  run_processes(2, [&](int rank) {
    ncast_comm* comm = nullptr;
    const auto start = Clock::now();
    if (rank == 0) {
      const Interrupt interrupt(0.3);
      EXPECT(ncast_comm_create(&comm, 3, &id, rank, nullptr) == NCAST_ABORTED);
      EXPECT(error_contains("interrupted"));
    } else {
      EXPECT(ncast_comm_create(&comm, 3, &id, rank, nullptr) == NCAST_ABORTED);
      EXPECT(error_contains("rank 0 aborted the communicator"));
    }
    EXPECT(comm == nullptr);
    EXPECT(seconds_since(start) < 20);
  });
}

// As Python ends a thread that runs a callback when the interpreter exits.
// Not under UBSan, which takes the catch clause of a forced unwind for a null reference.
#ifndef __SANITIZE_ADDRESS__
TEST_CASE("an interrupt check may end its thread") {
  const ncast_unique_id id = new_id();
  run_processes(1, [&](int) {
    std::thread([&] {
      ncast_comm* comm = nullptr;
      ncast_set_interrupt_check([](void*) -> int { pthread_exit(nullptr); }, nullptr);
      static_cast<void>(ncast_comm_create(&comm, 2, &id, 0, nullptr));
      EXPECT(false);
    }).join();
  });
}
#endif

TEST_CASE("an interrupted call aborts the communicator") {
  const ncast_unique_id id = new_id();
  run_processes(2, [&](int rank) {
    Comm comm(id, rank, 2, {0});
    if (rank == 0) {
      const Interrupt interrupt(0.3);
      EXPECT(reduce_one(comm) == NCAST_ABORTED);
    } else {
      while (ncast_comm_async_error(comm, nullptr, 0) == NCAST_OK) usleep(10000);
    }
    EXPECT(ncast_comm_async_error(comm, nullptr, 0) == NCAST_ABORTED);
  });
}

// The thread of the call waits for the stream, which waits for a call of another communicator.
TEST_CASE("an interrupted group releases its buffers while its stream is busy") {
  const ncast_unique_id ids[] = {new_id(), new_id()};
  run_processes(2, [&](int rank) {
    Comm busy(ids[0], rank, 2, {0}), comm(ids[1], rank, 2, {0});
    if (rank == 0) {
      ncast_stream stream = nullptr;
      EXPECT_OK(ncast_stream_create(&stream));
      float first = 1, second = 1;
      EXPECT_OK(ncast_all_reduce(&first, &first, 1, NCAST_FLOAT32, NCAST_SUM, NCAST_CODEC_RAW, busy, stream));
      {
        const Interrupt interrupt(0.3);
        EXPECT_OK(ncast_group_start());
        EXPECT_OK(ncast_all_reduce(&second, &second, 1, NCAST_FLOAT32, NCAST_SUM, NCAST_CODEC_RAW, comm, stream));
        EXPECT_OK(ncast_all_reduce(&second, &second, 1, NCAST_FLOAT32, NCAST_SUM, NCAST_CODEC_RAW, comm, nullptr));
        EXPECT(ncast_group_end() == NCAST_ABORTED);
      }
      EXPECT_OK(ncast_comm_async_error(busy, nullptr, 0));
      EXPECT_OK(ncast_comm_abort(busy));
      EXPECT_OK(ncast_stream_destroy(stream));
      EXPECT(second == 1);
    } else {
      while (ncast_comm_async_error(comm, nullptr, 0) == NCAST_OK) usleep(10000);
      while (ncast_comm_async_error(busy, nullptr, 0) == NCAST_OK) usleep(10000);
    }
    EXPECT(ncast_comm_async_error(comm, nullptr, 0) == NCAST_ABORTED);
  });
}

TEST_CASE("an interrupt check may call the library, and is not called meanwhile") {
  const ncast_unique_id id = new_id();
  int checked[2];  // a pipe, on which rank 0 tells rank 1 that it has been called
  REQUIRE(pipe(checked) == 0);
  run_processes(2, [&](int rank) {
    Comm comm(id, rank, 2, {30});
    struct Context {
      int pipe, depth = 0, calls = 0;
    } context{checked[1]};
    if (rank == 0) {
      const auto check = [](void* pointer) {
        auto* const own = static_cast<Context*>(pointer);
        EXPECT(++own->depth == 1);
        if (++own->calls == 1) EXPECT(write(own->pipe, "", 1) == 1);
        ncast_comm* single = nullptr;
        const ncast_unique_id other = new_id();
        EXPECT_OK(ncast_comm_create(&single, 1, &other, 0, nullptr));
        EXPECT_OK(reduce_one(single));
        EXPECT_OK(ncast_comm_destroy(single));
        --own->depth;
        return 0;
      };
      ncast_set_interrupt_check(check, &context);
      EXPECT_OK(reduce_one(comm));
      ncast_set_interrupt_check(nullptr, nullptr);
    } else {
      char byte = 0;
      EXPECT(read(checked[0], &byte, 1) == 1);
      EXPECT_OK(reduce_one(comm));
    }
  });
  for (const int end : checked) close(end);
}

}  // namespace
}  // namespace narrowcast::testing
