// A rank with ports for tests of kernels.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <barrier>
#include <vector>

#include "narrowcast/device.cuh"
#include "support/count_up.cuh"
#include "support/gpu_rank.h"

namespace narrowcast::testing {

inline constexpr uint8_t poison = 0xa5;
inline constexpr uint32_t ports_of_rank = 40;
enum : uint32_t { target, source, regions };  // peers put data from their `source` into the `target` of this rank
inline constexpr size_t region_bytes = 3'000'017;

inline uint8_t value(int rank, size_t i) {
  return static_cast<uint8_t>(i * 31 + i / 251 + static_cast<size_t>(rank) * 97);
}

// A rank with ports over two regions: a poisoned target and a filled source.
struct PortRank : GpuRank {
  PortRank(int rank, int ranks, const ncast_unique_id& id, std::barrier<>& everybody, double timeout_seconds = 20)
      : GpuRank(rank, ranks, id, everybody, timeout_seconds), previous((rank + ranks - 1) % ranks) {
    for (void*& region : memory) EXPECT_OK(ncast_mem_alloc(comm, region_bytes, &region));
    EXPECT_OK(ncast_ports_create(comm, ports_of_rank, memory, regions, &ports));
    std::vector<uint8_t> values(region_bytes);
    for (size_t i = 0; i < region_bytes; ++i) values[i] = value(rank, i);
    EXPECT_CUDA(cudaMemcpy(memory[source], values.data(), region_bytes, cudaMemcpyDefault));
    std::ranges::fill(values, poison);
    EXPECT_CUDA(cudaMemcpy(memory[target], values.data(), region_bytes, cudaMemcpyDefault));
    EXPECT_CUDA(cudaDeviceSynchronize());
  }
  ~PortRank() { ncast_ports_destroy(comm, &ports); }

  std::vector<uint8_t> content(uint32_t region) const {
    std::vector<uint8_t> bytes(region_bytes);
    EXPECT_CUDA(cudaMemcpy(bytes.data(), memory[region], region_bytes, cudaMemcpyDefault));
    return bytes;
  }

  int previous;
  void* memory[regions];
  ncast_ports ports;
};

struct Neighbours {
  int next, previous;
  __device__ explicit Neighbours(const ncast_ports& ports)
      : next((ports.rank + 1) % ports.ranks), previous((ports.rank + ports.ranks - 1) % ports.ranks) {}
};

}  // namespace narrowcast::testing
