// The ranks of a communicator in one process, for tests of kernels that wait for each other. Ranks share a GPU if there
// are not enough; every rank has its own stream, so their kernels run concurrently.
#pragma once

#include <cuda_runtime.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "channel/packet/packet_area.h"
#include "doctest/doctest.h"
#include "executor/cuda/packets/launch.h"
#include "support/warm_stream.h"

#define REQUIRE_CUDA(call)                                                      \
  do {                                                                          \
    const cudaError_t cuda_error = (call);                                      \
    REQUIRE_MESSAGE(cuda_error == cudaSuccess, cudaGetErrorString(cuda_error)); \
  } while (false)

namespace narrowcast::testing {

// For ranks that share a GPU: every stream needs its own hardware queue, and no kernel may be loaded while another one
// waits.
inline const bool is_environment_ready = [] {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  return true;
}();

// Whether to run fewer cases, for compute-sanitizer.
inline bool is_reduced_run() { return getenv("NARROWCAST_TEST_REDUCED") != nullptr; }

struct TestRank {
  int device = 0;
  cudaStream_t stream = nullptr;
  char* scratch = nullptr;
  channel::KernelControl* control = nullptr;
  char* arena = nullptr;  // the user's buffers
  uint32_t* counters = nullptr;
};

class TestWorld {
 public:
  static constexpr size_t scratch_offset = 384;
  static constexpr size_t guard_bytes = 512;
  static constexpr size_t arena_bytes = 80 << 20;
  static constexpr unsigned char guard = 0xcd;

  // link: nvlink, or host, with the scratch in host memory.
  explicit TestWorld(int ranks, double timeout_seconds = 30, select::Link link = select::Link::nvlink)
      : ranks_(static_cast<size_t>(ranks)), link_(link) {
    int devices = 0;
    REQUIRE_CUDA(cudaGetDeviceCount(&devices));
    devices = std::min(devices, ranks);
    if (!enable_peer_access(devices)) devices = 1;
    timeout_ns_ = static_cast<uint64_t>(timeout_seconds * 1e9);
    const size_t area = area_bytes();
    for (int rank = 0; rank < ranks; ++rank) {
      TestRank& one = ranks_[static_cast<size_t>(rank)];
      one.device = rank % devices;
      REQUIRE_CUDA(cudaSetDevice(one.device));
      REQUIRE_CUDA(cudaStreamCreateWithFlags(&one.stream, cudaStreamNonBlocking));
      const size_t scratch_bytes = scratch_offset + area + guard_bytes;
      REQUIRE_CUDA(in_host() ? cudaHostAlloc(&one.scratch, scratch_bytes, cudaHostAllocPortable | cudaHostAllocMapped)
                             : cudaMalloc(&one.scratch, scratch_bytes));
      REQUIRE_CUDA(cudaMemset(one.scratch, guard, scratch_bytes));
      REQUIRE_CUDA(cudaMemset(one.scratch + scratch_offset, 0, area));
      REQUIRE_CUDA(cudaMalloc(&one.arena, arena_bytes));
      REQUIRE_CUDA(cudaMalloc(&one.counters, 2 * sizeof(uint32_t)));
      REQUIRE_CUDA(cudaMemset(one.counters, 0, 2 * sizeof(uint32_t)));
      REQUIRE_CUDA(cudaHostAlloc(&one.control, sizeof *one.control, cudaHostAllocPortable | cudaHostAllocMapped));
      std::memset(one.control, 0, sizeof *one.control);
      warm_up_stream(one.stream);
      REQUIRE_CUDA(cudaDeviceSynchronize());
    }
  }
  ~TestWorld() {
    for (const TestRank& one : ranks_) {
      cudaSetDevice(one.device);
      cudaStreamSynchronize(one.stream);
      cudaStreamDestroy(one.stream);
      in_host() ? cudaFreeHost(one.scratch) : cudaFree(one.scratch);
      cudaFree(one.arena);
      cudaFree(one.counters);
      cudaFreeHost(one.control);
    }
  }
  TestWorld(const TestWorld&) = delete;

  int ranks() const { return static_cast<int>(ranks_.size()); }
  select::Link link() const { return link_; }
  bool in_host() const { return link_ == select::Link::host; }
  size_t area_bytes() const { return executor::cuda::packet_scratch_bytes(ranks(), in_host()); }
  const TestRank& rank(int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  channel::PacketState* state(int rank) const {
    return reinterpret_cast<channel::PacketState*>(this->rank(rank).scratch + scratch_offset);
  }

  channel::Peers peers(int rank) const {
    channel::Peers peers{};
    peers.rank = rank;
    peers.ranks = ranks();
    for (int peer = 0; peer < ranks(); ++peer) peers.scratch[peer] = this->rank(peer).scratch;
    peers.control = this->rank(rank).control;
    peers.ctas = state(rank)->ctas;
    peers.timeout_ns = timeout_ns_;
    return peers;
  }

  void launch(int rank, const executor::cuda::PacketCall& call, const executor::cuda::PacketShape& shape) const {
    use(rank);
    REQUIRE_CUDA(executor::cuda::launch_packets(peers(rank), scratch_offset, call, shape, this->rank(rank).stream));
  }
  void launch(int rank, const executor::cuda::PacketCall& call, uint32_t max_ctas) const {
    use(rank);
    const uint64_t bytes = call.count * ncast_dtype_bytes(call.dtype);
    launch(rank, call, executor::cuda::choose_packet_shape(call.operation, bytes, ranks(), link_, max_ctas));
  }
  void use(int rank) const { REQUIRE_CUDA(cudaSetDevice(this->rank(rank).device)); }

  // Waits for all ranks and checks that no kernel reported a failure.
  void synchronize() const {
    wait();
    for (const TestRank& one : ranks_) REQUIRE(one.control->failed == 0);
  }
  void wait() const {
    for (int rank = 0; rank < ranks(); ++rank) {
      use(rank);
      REQUIRE_CUDA(cudaStreamSynchronize(this->rank(rank).stream));
    }
  }
  void stop() const {
    for (const TestRank& one : ranks_) *const_cast<volatile uint32_t*>(&one.control->stop) = 1;
  }

  // Checks that nothing was written outside the packet area, and that all CTAs have counted the same number of calls.
  void check_scratch() const {
    const size_t area = area_bytes();
    for (const TestRank& one : ranks_) {
      std::vector<unsigned char> guards(scratch_offset + guard_bytes);
      REQUIRE_CUDA(cudaMemcpy(guards.data(), one.scratch, scratch_offset, cudaMemcpyDefault));
      REQUIRE_CUDA(cudaMemcpy(guards.data() + scratch_offset, one.scratch + scratch_offset + area, guard_bytes,
                              cudaMemcpyDefault));
      CHECK(std::count(guards.begin(), guards.end(), guard) == static_cast<std::ptrdiff_t>(guards.size()));
      channel::PacketState state;
      REQUIRE_CUDA(cudaMemcpy(&state, one.scratch + scratch_offset, sizeof state, cudaMemcpyDefault));
      for (const channel::CtaState& cta : state.ctas) CHECK(cta.packet_calls == state.ctas[0].packet_calls);
      CHECK(state.ended_ctas == 0);
    }
  }

 private:
  static bool enable_peer_access(int devices) {
    for (int a = 0; a < devices; ++a) {
      REQUIRE_CUDA(cudaSetDevice(a));
      for (int b = 0; b < devices; ++b) {
        int can = 1;
        if (a != b) REQUIRE_CUDA(cudaDeviceCanAccessPeer(&can, a, b));
        if (can == 0) return false;
        if (a == b) continue;
        const cudaError_t error = cudaDeviceEnablePeerAccess(b, 0);
        if (error == cudaErrorPeerAccessAlreadyEnabled) {
          cudaGetLastError();
        } else {
          REQUIRE_CUDA(error);
        }
      }
    }
    return true;
  }

  std::vector<TestRank> ranks_;
  select::Link link_;
  uint64_t timeout_ns_ = 0;
};

}  // namespace narrowcast::testing
