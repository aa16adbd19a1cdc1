// Ranks of a CUDA communicator in threads of one process, for tests that launch their own kernels. Ranks share a GPU if
// there are not enough.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <numeric>
#include <string>

#include "ranks.h"
#include "warm_stream.h"

#define EXPECT_CUDA(call) EXPECT((call) == cudaSuccess)

namespace narrowcast::testing {

// For ranks that share a GPU: every stream needs its own hardware queue, and no kernel may be loaded while another one
// waits.
inline const bool is_environment_ready = [] {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  return true;
}();

// Whether to run fewer cases, for compute-sanitizer.
inline const bool is_reduced_run = std::getenv("NARROWCAST_TEST_REDUCED") != nullptr;

// A communicator, a stream, and a counter for each thread of the kernels. Used by the thread of the rank.
class GpuRank {
 public:
  static constexpr uint32_t most_threads = 2048;

  GpuRank(int rank, int ranks, const ncast_unique_id& id, std::barrier<>& everybody, double timeout_seconds)
      : everybody_(everybody) {
    int devices = 0;
    EXPECT_CUDA(cudaGetDeviceCount(&devices));
    EXPECT_CUDA(cudaSetDevice(rank % devices));
    shares_gpu_ = ranks > devices;
    ncast_comm_config config;
    ncast_comm_config_init(&config);
    config.backend = NCAST_BACKEND_CUDA;
    config.device = rank % devices;
    config.timeout_seconds = timeout_seconds;
    EXPECT_OK(ncast_comm_create(&comm, ranks, &id, rank, &config));
    EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    warm_up_stream(stream);
    EXPECT_CUDA(cudaMallocHost(&counts, most_threads * sizeof *counts));
    std::fill_n(counts, most_threads, 0);
  }
  GpuRank(const GpuRank&) = delete;
  ~GpuRank() {
    EXPECT_CUDA(cudaStreamDestroy(stream));
    EXPECT_CUDA(cudaFreeHost(counts));
    ncast_comm_destroy(comm);
  }

  // Launch kernels that wait for each other between begin() and end(). All ranks have finished their set-up when
  // begin() returns, because operations that wait for the GPU could deadlock with such kernels if ranks share it.
  void begin() {
    EXPECT_CUDA(cudaStreamSynchronize(nullptr));  // copies from pageable memory may return before they end
    everybody_.arrive_and_wait();
  }
  // Call on every rank after each of several launches. If ranks share a GPU, it waits until all have launched this
  // kernel: streams share hardware queues, and a second kernel of one stream could be queued before the kernel that the
  // first one waits for.
  void launched() {
    if (shares_gpu_) everybody_.arrive_and_wait();
  }
  void end() {
    EXPECT_CUDA(cudaGetLastError());
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    everybody_.arrive_and_wait();
  }
  uint32_t count() const { return std::accumulate(counts, counts + most_threads, 0u); }

  ncast_comm* comm = nullptr;
  cudaStream_t stream = nullptr;
  uint32_t* counts = nullptr;

 private:
  std::barrier<>& everybody_;
  bool shares_gpu_ = false;
};

inline void run_ranks(int ranks, const std::function<void(int, const ncast_unique_id&, std::barrier<>&)>& body) {
  const ncast_unique_id id = new_id();
  std::barrier everybody(ranks);
  run_threads(ranks, [&](int rank) { body(rank, id, everybody); });
}

// Whether the communicator has this error, with a message that contains `part`.
inline bool is_error(ncast_comm* comm, ncast_status status, const char* part) {
  char message[300];
  return ncast_comm_async_error(comm, message, sizeof message) == status &&
         std::string(message).find(part) != std::string::npos;
}

// Whether the last call returned the expected error, with a message that contains `part`.
inline bool failed_with(ncast_status status, ncast_status expected, const char* part) {
  return status == expected && std::string(ncast_last_error()).find(part) != std::string::npos;
}

}  // namespace narrowcast::testing
