// The exchange of 01_ring_exchange with copy engines: the kernel computes the values and requests the copy through a
// port, so no warp copies. docs/guide/channels.md explains it.
//   port_exchange [RANKS]: by default one per GPU, or 2 if there is only one GPU
#include <cuda_runtime.h>

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "narrowcast/device.cuh"
#include "narrowcast/narrowcast.h"

#define CUDA(call) check((call) == cudaSuccess, #call, cudaGetErrorString(cudaPeekAtLastError()))
#define NCAST(call) check((call) == NCAST_OK, #call, ncast_last_error())

constexpr int skipped = 77;
constexpr size_t bytes = 1'000'003;  // of a buffer
constexpr int ctas = 4;              // few, so that the kernels of all ranks run concurrently
constexpr size_t part_bytes = (bytes + ctas - 1) / ctas;
enum : uint32_t { sent, received };  // the regions

__host__ __device__ uint8_t value(int rank, size_t i) {
  return static_cast<uint8_t>(i * 31 + i / 251 + static_cast<size_t>(rank) * 97);
}

// Each CTA computes a part of the values, puts it through its own port, and counts wrong values in the part that it
// receives.
__global__ void exchange(const __grid_constant__ ncast_ports ports, uint8_t* send, const uint8_t* recv,
                         unsigned int* wrong) {
  const int next = (ports.rank + 1) % ports.ranks;
  const int previous = (ports.rank + ports.ranks - 1) % ports.ranks;
  const size_t begin = blockIdx.x * part_bytes, end = min(bytes, begin + part_bytes);
  for (size_t i = begin + threadIdx.x; i < end; i += blockDim.x) send[i] = value(ports.rank, i);
  __syncthreads();
  __shared__ bool is_there;
  if (threadIdx.x == 0) {
    narrowcast::Port to_next(ports, next, blockIdx.x), from_previous(ports, previous, blockIdx.x);
    is_there = to_next.put_with_signal({received, begin}, {sent, begin}, end - begin) && from_previous.wait() &&
               to_next.flush();  // the source may be overwritten
  }
  __syncthreads();
  for (size_t i = begin + threadIdx.x; i < end; i += blockDim.x)
    if (!is_there || recv[i] != value(previous, i)) atomicAdd(wrong, 1u);
}

// The first launch on a stream may wait until the kernels that run on the GPU have ended. Where ranks share a GPU these
// may be waiting for this very launch, so every stream gets an empty kernel before the exchange.
__global__ void do_nothing() {}

// Exits without destructors, because other ranks may be waiting in their threads.
[[noreturn]] void stop(int status) {
  std::fflush(nullptr);
  std::_Exit(status);
}
void check(bool right, const char* what, const char* why) {
  if (right) return;
  std::fprintf(stderr, "%s: %s\n", what, why);
  stop(1);
}

// Returns whether the previous rank's values arrived.
bool run_rank(int rank, int ranks, int device, const ncast_unique_id& id, std::barrier<>& everybody) {
  CUDA(cudaSetDevice(device));
  ncast_comm_config config;
  ncast_comm_config_init(&config);
  config.backend = NCAST_BACKEND_CUDA;
  config.device = device;
  config.timeout_seconds = 20;
  ncast_comm* comm = nullptr;
  const ncast_status status = ncast_comm_create(&comm, ranks, &id, rank, &config);
  if (status == NCAST_UNSUPPORTED) {
    std::printf("skipped: %s\n", ncast_last_error());
    stop(skipped);
  }
  NCAST(status);
  void* memory[2];
  for (void*& region : memory) NCAST(ncast_mem_alloc(comm, bytes, &region));
  ncast_ports ports;
  NCAST(ncast_ports_create(comm, ctas, memory, 2, &ports));

  unsigned int *counter = nullptr, wrong = 0;
  cudaStream_t stream = nullptr;
  CUDA(cudaMalloc(&counter, sizeof *counter));
  CUDA(cudaMemset(counter, 0, sizeof *counter));
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  do_nothing<<<1, 1, 0, stream>>>();
  CUDA(cudaDeviceSynchronize());

  // If ranks share a GPU, nothing may synchronise with it until the kernels of all ranks have been launched.
  everybody.arrive_and_wait();
  exchange<<<ctas, 128, 0, stream>>>(ports, static_cast<uint8_t*>(memory[sent]),
                                     static_cast<const uint8_t*>(memory[received]), counter);
  CUDA(cudaGetLastError());
  CUDA(cudaStreamSynchronize(stream));
  NCAST(ncast_comm_async_error(comm, nullptr, 0));  // reports why a kernel gave up
  everybody.arrive_and_wait();

  CUDA(cudaMemcpy(&wrong, counter, sizeof wrong, cudaMemcpyDeviceToHost));
  std::printf("rank %d on GPU %d: %zu bytes from rank %d, %u wrong\n", rank, device, bytes, (rank + ranks - 1) % ranks,
              wrong);
  NCAST(ncast_ports_destroy(comm, &ports));
  NCAST(ncast_comm_destroy(comm));
  CUDA(cudaStreamDestroy(stream));
  CUDA(cudaFree(counter));
  return wrong == 0;
}

int main(int argc, char** argv) {
  // While kernels of ranks on one GPU wait for each other, no kernel may be loaded, and no two streams may share a
  // queue.
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  const int gpus = ncast_cuda_device_count();
  if (gpus == 0) {
    std::printf("skipped: no GPU that CUDA can use\n");
    return skipped;
  }
  const int ranks = argc > 1 ? std::atoi(argv[1]) : gpus > 1 ? std::min(gpus, 8) : 2;
  ncast_unique_id id;
  NCAST(ncast_get_unique_id(&id));
  std::barrier everybody(ranks);
  std::vector<std::thread> threads;
  std::vector<char> right(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back(
        [&, rank] { right[static_cast<size_t>(rank)] = run_rank(rank, ranks, rank % gpus, id, everybody); });
  }
  for (std::thread& thread : threads) thread.join();
  return std::ranges::count(right, char{1}) == ranks ? 0 : 1;
}
