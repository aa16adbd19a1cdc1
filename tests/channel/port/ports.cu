// Ports in user kernels, through the public interface.
#include <cuda_runtime.h>

#include <algorithm>
#include <barrier>
#include <vector>

#include "channel/port/port_rank.h"
#include "narrowcast/narrowcast.h"

namespace narrowcast::testing {
namespace {

// A put from offset `from` of the source to offset `to` of the target.
struct Part {
  uint64_t to, from, bytes;
};
constexpr Part parts[] = {{0, 0, 1},           {1, 7, 3},
                          {5, 100, 16},        {33, 1, 255},
                          {300, 4096, 4096},   {5001, 4097, 12345},
                          {30'000, 3, 65'536}, {100'001, 2, 999'999},
                          {2'000'000, 0, 0},   {region_bytes - 5, region_bytes - 5, 5}};
__device__ constexpr Part device_parts[] = {parts[0], parts[1], parts[2], parts[3], parts[4],
                                            parts[5], parts[6], parts[7], parts[8], parts[9]};
static_assert(std::size(parts) == std::size(device_parts));

// Counts failures in *wrong.
__global__ void put_parts(const __grid_constant__ ncast_ports ports, uint32_t* wrong) {
  const Neighbours neighbours(ports);
  Port to_next(ports, neighbours.next, 0), from_previous(ports, neighbours.previous, 0);
  for (const Part& part : device_parts)
    if (!to_next.put({target, part.to}, {source, part.from}, part.bytes)) count_up(wrong, 1);
  if (!to_next.signal() || !to_next.flush() || !from_previous.wait()) count_up(wrong, 1);
  if (from_previous.poll()) count_up(wrong, 1);  // there was only one signal
}

std::vector<uint8_t> expected_from(int rank) {
  std::vector<uint8_t> expected(region_bytes, poison);
  for (const Part& part : parts)
    for (size_t i = 0; i < part.bytes; ++i) expected[part.to + i] = value(rank, part.from + i);
  return expected;
}

// Fewer ranks under a sanitizer: with more ranks on one GPU, each waits too long for its turn.
std::vector<int> ring_sizes() { return is_reduced_run ? std::vector{1, 2} : std::vector{1, 2, 3}; }

TEST_CASE("puts of any size and alignment write exactly their bytes") {
  for (const int ranks : ring_sizes()) {
    CAPTURE(ranks);
    run_ranks(ranks, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
      PortRank mine(rank, ranks, id, everybody);
      mine.begin();
      put_parts<<<1, 1, 0, mine.stream>>>(mine.ports, mine.counts);
      mine.end();
      EXPECT_OK(ncast_comm_async_error(mine.comm, nullptr, 0));
      EXPECT(mine.count() == 0);
      EXPECT(mine.content(target) == expected_from(mine.previous));
    });
  }
}

// Every CTA has a port for data, a port to acknowledge that data was read, and a part of each region.
constexpr uint32_t ctas = 16, threads = 64;
constexpr uint32_t part_bytes = 5003;  // of each CTA; odd, so that parts are not aligned
static_assert(2 * ctas <= ports_of_rank && ctas * part_bytes <= region_bytes &&
              ctas * threads <= GpuRank::most_threads);

__device__ uint8_t byte_of(int rank, uint32_t turn, uint32_t i) {
  return static_cast<uint8_t>(rank * 71 + turn * 7 + blockIdx.x * 13 + i + i / 256);
}

// turns_before: in device memory, the turns of each CTA in earlier launches, so that every launch sends other bytes.
// *wrong counts wrong bytes, and a million for each CTA that is stopped.
__global__ void exchange(const __grid_constant__ ncast_ports ports, uint8_t* own_target, uint8_t* own_source,
                         uint32_t turns, uint32_t* turns_before, uint32_t* wrong) {
  const Neighbours neighbours(ports);
  const uint32_t at = blockIdx.x * part_bytes, first = turns_before[blockIdx.x];
  Port to_next(ports, neighbours.next, blockIdx.x), from_previous(ports, neighbours.previous, blockIdx.x);
  Port to_previous(ports, neighbours.previous, ctas + blockIdx.x), from_next(ports, neighbours.next, ctas + blockIdx.x);
  __shared__ bool is_right;
  for (uint32_t turn = first; turn < first + turns; ++turn) {
    for (uint32_t i = threadIdx.x; i < part_bytes; i += blockDim.x) own_source[at + i] = byte_of(ports.rank, turn, i);
    __syncthreads();
    if (threadIdx.x == 0) {
      bool is_there = false;
      is_right = turn % 3 == 0 ? to_next.put_with_signal_and_flush({target, at}, {source, at}, part_bytes)
                               : to_next.put_with_signal({target, at}, {source, at}, part_bytes);
      for (uint32_t look = 0; look < turn % 2 * 100 && !is_there; ++look) is_there = from_previous.poll();
      is_right = is_right && (is_there || from_previous.wait());
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < part_bytes && is_right; i += blockDim.x)
      if (own_target[at + i] != byte_of(neighbours.previous, turn, i)) count_up(wrong, 1);
    __syncthreads();
    // Tell the previous rank that it may put again, and wait until the next rank has read this turn's data. The source
    // can then be overwritten.
    if (threadIdx.x == 0) is_right = is_right && to_previous.signal() && from_next.wait();
    __syncthreads();
    if (is_right) continue;
    if (threadIdx.x == 0) count_up(wrong, 1000000);
    return;
  }
  if (threadIdx.x == 0) turns_before[blockIdx.x] = first + turns;
}

struct Turns {
  Turns() {
    EXPECT_CUDA(cudaMalloc(&of_cta, ctas * sizeof *of_cta));
    EXPECT_CUDA(cudaMemset(of_cta, 0, ctas * sizeof *of_cta));
    EXPECT_CUDA(cudaDeviceSynchronize());
  }
  ~Turns() { EXPECT_CUDA(cudaFree(of_cta)); }
  uint32_t* of_cta = nullptr;
};

void launch_exchange(PortRank& mine, uint32_t grid, uint32_t turns, const Turns& before) {
  exchange<<<grid, threads, 0, mine.stream>>>(mine.ports, static_cast<uint8_t*>(mine.memory[target]),
                                              static_cast<uint8_t*>(mine.memory[source]), turns, before.of_cta,
                                              mine.counts);
}

void check_exchange(int ranks, uint32_t grid, uint32_t turns, int launches) {
  CAPTURE(ranks);
  run_ranks(ranks, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
    PortRank mine(rank, ranks, id, everybody);
    const Turns before;
    mine.begin();
    for (int launch = 0; launch < launches; ++launch) {
      launch_exchange(mine, grid, turns, before);
      mine.launched();
    }
    mine.end();
    EXPECT_OK(ncast_comm_async_error(mine.comm, nullptr, 0));
    EXPECT(mine.count() == 0);
    const std::vector<uint8_t> got = mine.content(target);
    EXPECT(std::all_of(got.begin() + grid * part_bytes, got.end(), [](uint8_t byte) { return byte == poison; }));
  });
}

TEST_CASE("a thousand exchanges around a ring of ranks are right, while the FIFO wraps around") {
  for (const int ranks : ring_sizes()) check_exchange(ranks, 1, is_reduced_run ? 300 : 1000, 1);
}

TEST_CASE("when its signal arrives, each of many concurrent CTAs sees its data") {
  for (const int ranks : ring_sizes()) check_exchange(ranks, ctas, is_reduced_run ? 4 : 40, 3);
}

TEST_CASE("a captured exchange can be replayed") {
  run_ranks(2, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
    PortRank mine(rank, 2, id, everybody);
    const Turns before;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    EXPECT_CUDA(cudaStreamBeginCapture(mine.stream, cudaStreamCaptureModeThreadLocal));
    launch_exchange(mine, ctas, 3, before);
    EXPECT_CUDA(cudaStreamEndCapture(mine.stream, &graph));
    EXPECT_CUDA(cudaGraphInstantiate(&replay, graph, 0));
    EXPECT_CUDA(cudaGraphUpload(replay, mine.stream));
    EXPECT_CUDA(cudaStreamSynchronize(mine.stream));
    mine.begin();
    for (int launch = 0; launch < (is_reduced_run ? 3 : 20); ++launch) {
      EXPECT_CUDA(cudaGraphLaunch(replay, mine.stream));
      mine.launched();
    }
    mine.end();
    EXPECT_OK(ncast_comm_async_error(mine.comm, nullptr, 0));
    EXPECT(mine.count() == 0);
    EXPECT_CUDA(cudaGraphExecDestroy(replay));
    EXPECT_CUDA(cudaGraphDestroy(graph));
  });
}

// All threads together post four times as many requests as the FIFO has slots.
constexpr uint32_t signals_of_thread = 8;

__global__ void signal_often(const __grid_constant__ ncast_ports ports, uint32_t* wrong) {
  const Neighbours neighbours(ports);
  Port to_next(ports, neighbours.next, 1), from_previous(ports, neighbours.previous, 1);
  for (uint32_t i = 0; i < signals_of_thread; ++i)
    if (!to_next.signal()) count_up(wrong, 1);
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (uint32_t i = 0; i < signals_of_thread * blockDim.x; ++i)
    if (!from_previous.wait()) return count_up(wrong, 1000000);
  if (!to_next.flush() || from_previous.poll()) count_up(wrong, 1);
}

TEST_CASE("a full FIFO makes kernels wait and loses nothing") {
  run_ranks(2, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
    PortRank mine(rank, 2, id, everybody);
    mine.begin();
    signal_often<<<1, 256, 0, mine.stream>>>(mine.ports, mine.counts);
    mine.end();
    EXPECT_OK(ncast_comm_async_error(mine.comm, nullptr, 0));
    EXPECT(mine.count() == 0);
  });
}

__global__ void put_and_leave(const __grid_constant__ ncast_ports ports, uint32_t* wrong) {
  const Neighbours neighbours(ports);
  Port to_next(ports, neighbours.next, 0);
  for (const Part& part : device_parts)
    if (!to_next.put({target, part.to}, {source, part.from}, part.bytes)) count_up(wrong, 1);
}

TEST_CASE("destroying ports completes their requests and does not affect other ports") {
  run_ranks(2, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
    PortRank mine(rank, 2, id, everybody);
    ncast_ports others;
    EXPECT_OK(ncast_ports_create(mine.comm, 1, mine.memory, regions, &others));
    mine.begin();
    put_and_leave<<<1, 1, 0, mine.stream>>>(others, mine.counts);
    mine.end();
    EXPECT_OK(ncast_ports_destroy(mine.comm, &others));
    EXPECT(mine.count() == 0);
    EXPECT(mine.content(target) == expected_from(mine.previous));
    mine.begin();
    put_parts<<<1, 1, 0, mine.stream>>>(mine.ports, mine.counts);
    mine.end();
    EXPECT(mine.count() == 0);
    EXPECT_OK(ncast_comm_async_error(mine.comm, nullptr, 0));
  });
}

TEST_CASE("invalid arguments of ports are rejected and leave the communicator usable") {
  run_ranks(1, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
    PortRank mine(rank, 1, id, everybody);
    ncast_ports ports = mine.ports;
    void* foreign[] = {mine.memory[0], &ports};
    const auto bad = NCAST_INVALID_ARGUMENT;
    EXPECT(failed_with(ncast_ports_create(nullptr, 1, nullptr, 0, &ports), bad, "ncast_ports_create: comm is NULL"));
    EXPECT(failed_with(ncast_ports_create(mine.comm, 1, nullptr, 0, nullptr), bad, "result is NULL"));
    EXPECT(failed_with(ncast_ports_create(mine.comm, 1, nullptr, 1, &ports), bad, "memory is NULL"));
    EXPECT(failed_with(ncast_ports_create(mine.comm, 0, nullptr, 0, &ports), bad, "ports is 0, not 1 to 255"));
    EXPECT(failed_with(ncast_ports_create(mine.comm, 256, nullptr, 0, &ports), bad, "ports is 256"));
    EXPECT(failed_with(ncast_ports_create(mine.comm, 1, foreign, 32, &ports), bad, "regions is 32, not 0 to 31"));
    EXPECT(failed_with(ncast_ports_create(mine.comm, 1, foreign, 2, &ports), bad, "was not allocated by"));
    EXPECT(failed_with(ncast_ports_destroy(mine.comm, nullptr), bad, "ports is NULL"));
    EXPECT(failed_with(ncast_mem_free(mine.comm, mine.memory[0]), bad, "is used by ports"));
    EXPECT_OK(ncast_comm_async_error(mine.comm, nullptr, 0));
    EXPECT_OK(ncast_ports_create(mine.comm, 255, nullptr, 0, &ports));
    EXPECT_OK(ncast_ports_destroy(mine.comm, &ports));
    EXPECT(failed_with(ncast_ports_destroy(mine.comm, &ports), bad, "the ports do not belong to this communicator"));
    EXPECT_OK(ncast_ports_destroy(mine.comm, &mine.ports));
    EXPECT_OK(ncast_mem_free(mine.comm, mine.memory[0]));
    EXPECT_OK(ncast_comm_async_error(mine.comm, nullptr, 0));
  });
}

TEST_CASE("ranks that create different ports get a mismatch") {
  run_ranks(2, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
    PortRank mine(rank, 2, id, everybody);
    ncast_ports ports;
    void* const order[] = {mine.memory[rank], mine.memory[1 - rank]};
    const ncast_status status = ncast_ports_create(mine.comm, 1, order, 2, &ports);
    EXPECT(failed_with(status, NCAST_MISMATCH, "are from different calls of ncast_mem_alloc"));
  });
}

}  // namespace
}  // namespace narrowcast::testing
