// Long calls that wait for a rank: what else a GPU can do meanwhile.
#include <cuda_runtime.h>

#include <barrier>
#include <chrono>

#include "gpu_rank.h"
#include "narrowcast/narrowcast.h"

namespace narrowcast::testing {
namespace {

constexpr uint64_t elems = uint64_t{8} << 20;  // 32 MiB of float32

__global__ void fill(float* values, float value) {
  for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < elems; i += uint64_t{gridDim.x} * blockDim.x)
    values[i] = value;
}
__global__ void count_others(const float* values, float value, uint32_t* wrong) {
  const uint64_t first = blockIdx.x * blockDim.x + threadIdx.x;
  for (uint64_t i = first; i < elems; i += uint64_t{gridDim.x} * blockDim.x)
    if (values[i] != value) count_up(wrong, 1);
}

__global__ void sleep_for(uint64_t nanoseconds) {
  uint64_t begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do {
    __nanosleep(1000);
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
}

// Ends well if all its CTAs run at the same time, each on an SM of its own for want of shared memory.
__global__ void take_all_sms(uint32_t* here, uint32_t* missing) {
  if (threadIdx.x != 0) return;
  atomicAdd(here, 1);
  uint64_t begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    if (atomicAdd(here, 0) == gridDim.x) return;
  } while (now - begin < 20'000'000);
  count_up(missing, 1);
}

struct Rank : GpuRank {
  Rank(int rank, int ranks, const ncast_unique_id& id, std::barrier<>& everybody)
      : GpuRank(rank, ranks, id, everybody, 20), rank(rank), ranks(ranks) {
    EXPECT_CUDA(cudaMalloc(&values, elems * sizeof(float)));
    EXPECT_CUDA(cudaMalloc(&sums, elems * sizeof(float)));
  }
  ~Rank() {
    EXPECT_CUDA(cudaFree(values));
    EXPECT_CUDA(cudaFree(sums));
  }
  void prepare(int call) const {
    fill<<<4, 512, 0, stream>>>(values, static_cast<float>(rank + call));
    EXPECT_CUDA(cudaMemsetAsync(sums, 0xA5, elems * sizeof(float), stream));
  }
  void add_up() const {
    EXPECT_OK(ncast_all_reduce(values, sums, elems, NCAST_FLOAT32, NCAST_SUM, NCAST_CODEC_AUTO, comm, stream));
  }
  void compare(int call) const {
    const int sum = ranks * (ranks - 1) / 2 + ranks * call;
    count_others<<<4, 512, 0, stream>>>(sums, static_cast<float>(sum), counts);
  }

  int rank, ranks;
  float *values = nullptr, *sums = nullptr;
};

TEST_CASE("while a long call waits for a rank, other kernels find every SM") {
  if (is_reduced_run) return;  // how long things take is of another kind there
  run_ranks(2, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
    Rank mine(rank, 2, id, everybody);
    int device = 0, sms = 0, shared_bytes = 0;
    EXPECT_CUDA(cudaGetDevice(&device));
    EXPECT_CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
    EXPECT_CUDA(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    EXPECT_CUDA(cudaFuncSetAttribute(take_all_sms, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
    cudaStream_t beside = nullptr;
    uint32_t* here = nullptr;
    EXPECT_CUDA(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking));
    EXPECT_CUDA(cudaMalloc(&here, sizeof *here));
    EXPECT_CUDA(cudaMemset(here, 0, sizeof *here));
    for (int call = 0; call < 2; ++call) {  // whatever the first has to set up
      mine.prepare(call);
      EXPECT_CUDA(cudaStreamSynchronize(mine.stream));
      mine.begin();
      if (call == 1 && rank == 1) sleep_for<<<1, 1, 0, mine.stream>>>(60'000'000);
      mine.add_up();
      if (call == 1 && rank == 0) {
        take_all_sms<<<static_cast<uint32_t>(sms), 32, static_cast<size_t>(shared_bytes), beside>>>(here, mine.counts);
        EXPECT_CUDA(cudaStreamSynchronize(beside));
        EXPECT(cudaStreamQuery(mine.stream) == cudaErrorNotReady);
        EXPECT(mine.count() == 0);
      }
      mine.compare(call);
      mine.end();
      EXPECT(mine.count() == 0);
    }
    EXPECT_CUDA(cudaStreamDestroy(beside));
    EXPECT_CUDA(cudaFree(here));
  });
}

TEST_CASE("a rank may capture long calls that another makes at once") {
  run_ranks(2, [&](int rank, const ncast_unique_id& id, std::barrier<>& everybody) {
    Rank mine(rank, 2, id, everybody);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    if (rank == 0) {
      EXPECT_CUDA(cudaStreamBeginCapture(mine.stream, cudaStreamCaptureModeThreadLocal));
      mine.add_up();
      EXPECT_CUDA(cudaStreamEndCapture(mine.stream, &graph));
      EXPECT_CUDA(cudaGraphInstantiate(&replay, graph, 0));
      EXPECT_CUDA(cudaGraphUpload(replay, mine.stream));
    }
    const auto begin = std::chrono::steady_clock::now();
    constexpr int calls = 40;
    for (int call = 0; call < calls; ++call) {
      mine.prepare(call);
      EXPECT_CUDA(cudaStreamSynchronize(mine.stream));
      mine.begin();
      if (rank == 0 && call % 8 != 0) {
        EXPECT_CUDA(cudaGraphLaunch(replay, mine.stream));
      } else {
        mine.add_up();
      }
      mine.compare(call);
      mine.end();
      EXPECT(mine.count() == 0);
    }
    // It is waited for in vain once, not in every call.
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    if (!is_reduced_run) EXPECT(seconds.count() < 0.1 * calls / 2);
    EXPECT_OK(ncast_comm_async_error(mine.comm, nullptr, 0));
    if (rank != 0) return;
    EXPECT_CUDA(cudaGraphExecDestroy(replay));
    EXPECT_CUDA(cudaGraphDestroy(graph));
  });
}

}  // namespace
}  // namespace narrowcast::testing
