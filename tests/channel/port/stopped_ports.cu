// What ports of users' kernels do when their communicator stops: puts out of bounds, aborts and timeouts.
#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <vector>

#include "channel/port/port_rank.h"
#include "narrowcast/narrowcast.h"

namespace narrowcast::testing {
namespace {

// Counts if the put succeeds.
__global__ void put_badly(const __grid_constant__ ncast_ports ports, PortPlace to, PortPlace from, uint64_t bytes,
                          uint32_t* not_stopped) {
  Port port(ports, 1, 0);
  if (port.put_with_signal_and_flush(to, from, bytes)) count_up(not_stopped, 1);
}

TEST_CASE("a put out of bounds ends the communicator and writes nothing") {
  struct Bad {
    PortPlace to, from;
    uint64_t bytes;
    const char* part;
  };
  constexpr uint64_t far = ~uint64_t{0};
  const Bad all[] = {{{target, 1}, {source, 0}, region_bytes, "to offset 1 of region 0, which has 3000017"},
                     {{target, 0}, {source, region_bytes}, 1, "from offset 3000017 of region 1"},
                     {{target, 0}, {regions, 0}, 1, "from region 2, but there are 2 regions"},
                     {{target, 0}, {source, 0}, 200'000'000, "of region 0, which has 3000017"},  // several requests
                     {{target, 0}, {source, far - 100}, 200'000'000, "of region"},
                     {{target, far}, {source, 0}, 8, "to offset 68719476735"},
                     {{target, 0}, {source, 0}, far, "to offset 68652367872"}};
  for (const Bad& bad : all) {
    CAPTURE(bad.part);
    run_ranks(2, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
      PortRank mine(rank, 2, id, everybody);
      mine.begin();
      if (rank == 0) put_badly<<<1, 1, 0, mine.stream>>>(mine.ports, bad.to, bad.from, bad.bytes, mine.counts);
      mine.end();
      EXPECT(mine.count() == 0);
      if (rank == 0) EXPECT(is_error(mine.comm, NCAST_INVALID_ARGUMENT, bad.part));
      const std::vector<uint8_t> got = mine.content(target);
      EXPECT(std::ranges::all_of(got, [](uint8_t byte) { return byte == poison; }));
      if (rank == 1) {
        while (ncast_comm_async_error(mine.comm, nullptr, 0) == NCAST_OK) sched_yield();  // TimeLimit bounds it
        EXPECT(is_error(mine.comm, NCAST_REMOTE_ERROR, "rank 0"));
      }
      EXPECT(ncast_ports_destroy(mine.comm, &mine.ports) != NCAST_OK);
    });
  }
}

__global__ void wait_for_nothing(const __grid_constant__ ncast_ports ports, uint32_t* stopped) {
  Port port(ports, 1, threadIdx.x);
  if (!port.poll() && !port.wait()) count_up(stopped, 1);
}

TEST_CASE("an abort ends a kernel that waits at a port") {
  run_ranks(2, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
    PortRank mine(rank, 2, id, everybody, 0);  // no limit
    mine.begin();
    if (rank == 0) wait_for_nothing<<<1, ports_of_rank, 0, mine.stream>>>(mine.ports, mine.counts);
    if (rank == 1) EXPECT_OK(ncast_comm_abort(mine.comm));
    mine.end();
    if (rank == 0) EXPECT(mine.count() == ports_of_rank);
    if (rank == 0) EXPECT(is_error(mine.comm, NCAST_ABORTED, ""));
  });
}

__global__ void signal_until_stopped(const __grid_constant__ ncast_ports ports, uint32_t* stopped) {
  Port port(ports, 1, 0);
  while (port.signal()) {
  }
  if (!port.flush()) count_up(stopped, 1);
}

TEST_CASE("an abort ends kernels that post and flush") {
  run_ranks(2, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
    PortRank mine(rank, 2, id, everybody, 0);
    mine.begin();
    if (rank == 0) signal_until_stopped<<<2, 32, 0, mine.stream>>>(mine.ports, mine.counts);
    if (rank == 1) {
      usleep(100000);
      EXPECT_OK(ncast_comm_abort(mine.comm));
    }
    mine.end();
    if (rank == 0) EXPECT(mine.count() == 64);
  });
}

TEST_CASE("a kernel that waits for a port ends at the timeout, and the communicator reports it") {
  run_ranks(2, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
    PortRank mine(rank, 2, id, everybody, 2);
    mine.begin();
    if (rank == 0) wait_for_nothing<<<1, ports_of_rank, 0, mine.stream>>>(mine.ports, mine.counts);
    mine.end();
    if (rank == 0) EXPECT(mine.count() == ports_of_rank);
    if (rank == 0) EXPECT(is_error(mine.comm, NCAST_TIMEOUT, "rank 0 waited for rank 1"));
  });
}

// Counts the functions that succeed on a port to this rank itself.
__global__ void try_port(const __grid_constant__ ncast_ports ports, uint32_t* succeeded) {
  Port port(ports, ports.rank, 0);
  uint32_t count = 0;
  if (port.poll()) ++count;
  if (port.wait()) ++count;
  if (port.put({0, 0}, {0, 0}, 0)) ++count;
  if (port.signal()) ++count;
  if (port.flush()) ++count;
  count_up(succeeded, count);
}
__global__ void leave_signals(const __grid_constant__ ncast_ports ports, uint32_t* failed) {
  Port port(ports, ports.rank, 0);
  if (!port.signal() || !port.signal() || !port.flush()) count_up(failed, 1);
}

TEST_CASE("ports of a stopped communicator fail even if a signal has arrived") {
  for (const bool stops : {false, true}) {
    run_ranks(1, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
      PortRank mine(rank, 1, id, everybody);
      mine.begin();
      leave_signals<<<1, 1, 0, mine.stream>>>(mine.ports, mine.counts);
      mine.end();
      EXPECT(mine.count() == 0);
      if (stops) {
        EXPECT_OK(ncast_comm_abort(mine.comm));
        usleep(200000);  // until an asynchronous copy has brought the abort to the GPU
      }
      try_port<<<1, 1, 0, mine.stream>>>(mine.ports, mine.counts);
      mine.end();
      EXPECT(mine.count() == (stops ? 0 : 5));
    });
  }
}

}  // namespace
}  // namespace narrowcast::testing
