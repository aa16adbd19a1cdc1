// Every rank sends a buffer to the next rank and receives one from the previous rank, in a kernel that uses memory
// channels. docs/guide/channels.md explains it.
//   ring_exchange [RANKS]: by default one per GPU, or 2 if there is only one GPU
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
constexpr int ctas = 4, warps = 4;   // few, so that the kernels of all ranks run concurrently

// Warp w uses ring w of both channels and transfers messages w, w + rings, w + 2 * rings and so on.
__global__ void exchange(const __grid_constant__ ncast_channels channels, const uint8_t* send, uint8_t* recv) {
  const uint32_t ring = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const int next = (channels.rank + 1) % channels.ranks;
  const int previous = (channels.rank + channels.ranks - 1) % channels.ranks;
  narrowcast::Sender to_next(channels, next, ring);
  narrowcast::Receiver from_previous(channels, previous, ring);
  for (size_t at = size_t{ring} * channels.slot_bytes; at < bytes; at += size_t{channels.rings} * channels.slot_bytes) {
    const auto part = static_cast<uint32_t>(min(bytes - at, size_t{channels.slot_bytes}));
    if (!to_next.put(send + at, part) || !to_next.signal()) return;
    if (!from_previous.get(recv + at, part)) return;
  }
  to_next.flush();  // the peer has received everything
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

uint8_t value(int rank, size_t i) { return static_cast<uint8_t>(i * 31 + i / 251 + static_cast<size_t>(rank) * 97); }

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
  ncast_channels channels;
  NCAST(ncast_channels_create(comm, ctas * warps, NCAST_SLOT_BYTES, &channels));

  std::vector<uint8_t> values(bytes);
  for (size_t i = 0; i < bytes; ++i) values[i] = value(rank, i);
  uint8_t *send = nullptr, *recv = nullptr;
  cudaStream_t stream = nullptr;
  CUDA(cudaMalloc(&send, bytes));
  CUDA(cudaMalloc(&recv, bytes));
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  do_nothing<<<1, 1, 0, stream>>>();
  CUDA(cudaMemcpy(send, values.data(), bytes, cudaMemcpyHostToDevice));
  CUDA(cudaMemset(recv, 0, bytes));
  CUDA(cudaDeviceSynchronize());

  // If ranks share a GPU, nothing may synchronise with it until the kernels of all ranks have been launched.
  everybody.arrive_and_wait();
  for (int turn = 0; turn < 3; ++turn) exchange<<<ctas, warps * 32, 0, stream>>>(channels, send, recv);
  CUDA(cudaGetLastError());
  CUDA(cudaStreamSynchronize(stream));
  NCAST(ncast_comm_async_error(comm, nullptr, 0));  // reports why a kernel gave up
  everybody.arrive_and_wait();

  CUDA(cudaMemcpy(values.data(), recv, bytes, cudaMemcpyDeviceToHost));
  size_t wrong = 0;
  for (size_t i = 0; i < bytes; ++i) wrong += values[i] != value((rank + ranks - 1) % ranks, i);
  std::printf("rank %d on GPU %d: %zu bytes from rank %d, %zu wrong\n", rank, device, bytes, (rank + ranks - 1) % ranks,
              wrong);
  NCAST(ncast_channels_destroy(comm, &channels));
  NCAST(ncast_comm_destroy(comm));
  CUDA(cudaStreamDestroy(stream));
  CUDA(cudaFree(send));
  CUDA(cudaFree(recv));
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
