// The exchange of 01_ring_exchange by copy engines: the kernel makes the values and asks for them to be put through a port, and
// no warp copies. docs/guide/channels.md walks through it.
//   port_exchange [RANKS]: by default one a GPU, or 2 on the only GPU
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
constexpr int ctas = 4;              // few: the kernels of all ranks have to run at once
constexpr size_t part_bytes = (bytes + ctas - 1) / ctas;
enum : uint32_t { sent, received };  // the regions

__host__ __device__ uint8_t value(int rank, size_t i) {
  return static_cast<uint8_t>(i * 31 + i / 251 + static_cast<size_t>(rank) * 97);
}

// Each CTA makes a part of the values, has it put, and counts what is wrong in the part that comes, with a port of its own.
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
               to_next.flush();  // ours may be written again
  }
  __syncthreads();
  for (size_t i = begin + threadIdx.x; i < end; i += blockDim.x)
    if (!is_there || recv[i] != value(previous, i)) atomicAdd(wrong, 1u);
}

// Other ranks may be waiting in their threads: the process ends as it is.
[[noreturn]] void stop(int status) {
  std::fflush(nullptr);
  std::_Exit(status);
}
void check(bool right, const char* what, const char* why) {
  if (right) return;
  std::fprintf(stderr, "%s: %s\n", what, why);
  stop(1);
}

// Returns whether what came is what the rank before sent.
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
  CUDA(cudaDeviceSynchronize());

  // Where ranks share a GPU, nothing may wait for it while some kernels still wait for others to be launched.
  everybody.arrive_and_wait();
  exchange<<<ctas, 128, 0, stream>>>(ports, static_cast<uint8_t*>(memory[sent]),
                                     static_cast<const uint8_t*>(memory[received]), counter);
  CUDA(cudaGetLastError());
  CUDA(cudaStreamSynchronize(stream));
  NCAST(ncast_comm_async_error(comm, nullptr, 0));  // a kernel that gave up says why
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
  // No kernel is loaded, and no stream shares a queue with another, while kernels of ranks on one GPU wait for each
  // other.
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
