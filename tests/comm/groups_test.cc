// Groups and streams.
#include <array>

#include "support/ranks.h"
#include "support/values.h"

namespace narrowcast::testing {
namespace {

std::vector<int32_t> numbers(size_t count, int seed) {
  std::vector<int32_t> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<int32_t>(i) * 31 + seed * 1000003;
  return values;
}

TEST_CASE("a group of many sends and receives runs in any order") {
  constexpr int ranks = 3;
  constexpr int messages = 4;
  constexpr size_t count = 30000;  // many more than fit into the slots
  const ncast_unique_id id = new_id();
  run_processes(ranks, [&](int rank) {
    Comm comm(id, rank, ranks, small_slots);
    std::vector<std::vector<int32_t>> sent;
    std::vector<std::vector<int32_t>> received(ranks * messages, std::vector<int32_t>(count));
    for (int peer = 0; peer < ranks; ++peer) {
      for (int m = 0; m < messages; ++m) sent.push_back(numbers(count, rank * 100 + peer * 10 + m));
    }
    const auto send_all = [&] {
      for (int peer = 0; peer < ranks; ++peer) {
        for (int m = 0; m < messages; ++m) {
          EXPECT_OK(ncast_send(sent[static_cast<size_t>(peer * messages + m)].data(), count, NCAST_INT32, peer,
                               NCAST_CODEC_RAW, comm, nullptr));
        }
      }
    };
    EXPECT_OK(ncast_group_start());
    if (rank == 0) send_all();
    EXPECT_OK(ncast_group_start());  // groups nest
    for (int peer = ranks - 1; peer >= 0; --peer) {
      for (int m = 0; m < messages; ++m) {
        EXPECT_OK(ncast_recv(received[static_cast<size_t>(peer * messages + m)].data(), count, NCAST_INT32, peer,
                             NCAST_CODEC_RAW, comm, nullptr));
      }
    }
    EXPECT_OK(ncast_group_end());
    if (rank != 0) send_all();
    EXPECT_OK(ncast_group_end());
    for (int peer = 0; peer < ranks; ++peer) {
      for (int m = 0; m < messages; ++m) {
        EXPECT(received[static_cast<size_t>(peer * messages + m)] == numbers(count, peer * 100 + rank * 10 + m));
      }
    }
  });
}

TEST_CASE("collectives of a group run in order, with copies of their counts") {
  constexpr int ranks = 3;
  const ncast_unique_id id = new_id();
  run_processes(ranks, [&](int rank) {
    Comm comm(id, rank, ranks);
    // Rank 2 gathers and scatters a number of each rank. Rank 1 receives their sum and sends it to all. Messages to the
    // next rank run at the same time.
    std::array<int32_t, ranks> gathered = {};
    std::array<int32_t, ranks> exchanged = {-1, -1, -1};
    const int32_t own = 10 * (rank + 1);
    int32_t piece = 0;
    int32_t sum = 0;
    int32_t taken = 0;
    std::array<int32_t, 2 * ranks> doubled = {};
    std::array<int32_t, 2> pair = {own, 5};
    EXPECT_OK(ncast_group_start());
    EXPECT_OK(ncast_recv(&taken, 1, NCAST_INT32, (rank + 2) % ranks, NCAST_CODEC_RAW, comm, nullptr));
    EXPECT_OK(ncast_all_reduce(pair.data(), pair.data(), 2, NCAST_INT32, NCAST_SUM, NCAST_CODEC_RAW, comm, nullptr));
    EXPECT_OK(ncast_all_gather(pair.data(), doubled.data(), 2, NCAST_INT32, NCAST_CODEC_RAW, comm, nullptr));
    EXPECT_OK(ncast_gather(&own, gathered.data(), 1, NCAST_INT32, 2, NCAST_CODEC_RAW, comm, nullptr));
    EXPECT_OK(ncast_scatter(gathered.data(), &piece, 1, NCAST_INT32, 2, NCAST_CODEC_RAW, comm, nullptr));
    EXPECT_OK(ncast_reduce(&piece, &sum, 1, NCAST_INT32, NCAST_SUM, 1, NCAST_CODEC_RAW, comm, nullptr));
    {
      // Only rank 1 sends: its sum, to every rank.
      std::array<uint64_t, ranks> send_counts = {};
      std::array<uint64_t, ranks> recv_counts = {0, 1, 0};
      std::array<uint64_t, ranks> offsets = {};
      if (rank == 1) send_counts = {1, 1, 1};
      EXPECT_OK(ncast_all_to_all_v(&sum, send_counts.data(), offsets.data(), exchanged.data(), recv_counts.data(),
                                   offsets.data(), NCAST_INT32, NCAST_CODEC_AUTO, comm, nullptr));
      send_counts.fill(99);
      recv_counts.fill(99);
      offsets.fill(99);
    }
    EXPECT_OK(ncast_send(&own, 1, NCAST_INT32, (rank + 1) % ranks, NCAST_CODEC_RAW, comm, nullptr));
    EXPECT_OK(ncast_group_end());
    EXPECT(taken == 10 * ((rank + 2) % ranks + 1));
    EXPECT((doubled == std::array<int32_t, 2 * ranks>{60, 15, 60, 15, 60, 15}));
    EXPECT(piece == own);
    EXPECT((exchanged == std::array<int32_t, ranks>{60, -1, -1}));
  });
}

TEST_CASE("calls on streams return at once and run in order") {
  constexpr int ranks = 2;
  constexpr size_t count = 100000;
  const ncast_unique_id id = new_id();
  run_processes(ranks, [&](int rank) {
    Comm comm(id, rank, ranks);
    ncast_stream streams[2];
    for (ncast_stream& stream : streams) EXPECT_OK(ncast_stream_create(&stream));
    std::vector<int32_t> values(count, rank);
    if (rank == 1) usleep(50000);  // the calls of rank 0 return although rank 1 is late
    // x -> 2x + 1 each time, alternating between two streams of one communicator.
    for (int i = 0; i < 6; ++i) {
      ncast_stream stream = streams[i % 2];
      EXPECT_OK(
          ncast_all_reduce(values.data(), values.data(), count, NCAST_INT32, NCAST_SUM, NCAST_CODEC_RAW, comm, stream));
    }
    for (ncast_stream stream : streams) EXPECT_OK(ncast_stream_synchronize(stream));
    for (const int32_t value : values) EXPECT(value == 32);
    for (ncast_stream stream : streams) EXPECT_OK(ncast_stream_destroy(stream));
  });
}

TEST_CASE("two communicators run concurrently on two streams") {
  constexpr int ranks = 3;
  constexpr size_t count = 60000;
  const ncast_unique_id ids[] = {new_id(), new_id()};
  run_processes(ranks, [&](int rank) {
    Comm first(ids[0], rank, ranks, small_slots);
    Comm second(ids[1], (rank + 1) % ranks, ranks, small_slots);
    ncast_stream streams[2];
    for (ncast_stream& stream : streams) EXPECT_OK(ncast_stream_create(&stream));
    std::vector<int32_t> a = numbers(count, rank);
    std::vector<int32_t> b = numbers(count, rank + 7);
    // The ranks launch the calls in different orders.
    const auto reduce = [&](std::vector<int32_t>& values, ncast_comm* comm, ncast_stream stream) {
      EXPECT_OK(
          ncast_all_reduce(values.data(), values.data(), count, NCAST_INT32, NCAST_MAX, NCAST_CODEC_RAW, comm, stream));
    };
    for (int i = 0; i < 3; ++i) {
      if (rank == 0) reduce(a, first, streams[0]);
      reduce(b, second, streams[1]);
      if (rank != 0) reduce(a, first, streams[0]);
    }
    for (ncast_stream stream : streams) EXPECT_OK(ncast_stream_synchronize(stream));
    EXPECT(a == numbers(count, ranks - 1));
    EXPECT(b == numbers(count, ranks + 6));
    for (ncast_stream stream : streams) EXPECT_OK(ncast_stream_destroy(stream));
  });
}

TEST_CASE("destroying a stream waits for its calls even if another thread synchronizes") {
  const ncast_unique_id id = new_id();
  run_processes(2, [&](int rank) {
    Comm comm(id, rank, 2);
    int32_t value = 7;
    if (rank == 1) {
      usleep(200000);
      EXPECT_OK(ncast_send(&value, 1, NCAST_INT32, 0, NCAST_CODEC_RAW, comm, nullptr));
      return;
    }
    value = 0;
    ncast_stream stream;
    EXPECT_OK(ncast_stream_create(&stream));
    EXPECT_OK(ncast_recv(&value, 1, NCAST_INT32, 1, NCAST_CODEC_RAW, comm, stream));
    std::thread other([stream] { EXPECT_OK(ncast_stream_synchronize(stream)); });
    usleep(50000);
    EXPECT_OK(ncast_stream_destroy(stream));
    EXPECT(value == 7);
    other.join();
  });
}

TEST_CASE("destroying a communicator waits for its streams") {
  constexpr int ranks = 2;
  const ncast_unique_id id = new_id();
  run_processes(ranks, [&](int rank) {
    ncast_stream stream;
    EXPECT_OK(ncast_stream_create(&stream));
    std::vector<int32_t> values(300000, 1);
    {
      Comm comm(id, rank, ranks, small_slots);
      EXPECT_OK(ncast_all_reduce(values.data(), values.data(), values.size(), NCAST_INT32, NCAST_SUM, NCAST_CODEC_RAW,
                                 comm, stream));
    }
    EXPECT(values.front() == 2);
    EXPECT(values.back() == 2);
    EXPECT_OK(ncast_stream_destroy(stream));
  });
}

}  // namespace
}  // namespace narrowcast::testing
