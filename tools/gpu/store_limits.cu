// Measures what bounds the kernels of the store on a GPU, without them: reads of pages of host memory, of which each
// costs an address translation, gathers of rows of 64 bytes that are already ordered, and stores of rows and of parts
// of lines. Writes JSON (bench/results/README.md). Needs 9 GiB of memory.
//
//   nvcc -std=c++20 -O2 -arch=sm_90 -Isrc -o store_limits tools/gpu/store_limits.cu
//   ./store_limits > store_limits.json
#include <cuda_runtime.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <random>
#include <vector>

#include "device/ptx/async_copy.cuh"
#include "device/ptx/bulk_copy.cuh"
#include "device/ptx/system_memory.cuh"
#include "store/cuda/row_output.cuh"
#include "timed_runs.cuh"

namespace {

// Reads 4 bytes at `each` places of every page, page after page or in another order. Threads have four reads on their
// way, and no two passes read the same sector.
__global__ void __launch_bounds__(1024) read_pages(const char* base, uint64_t pages, uint64_t page_bytes, uint32_t each,
                                                   uint32_t passes, bool is_shuffled, uint32_t* sink) {
  const uint64_t threads = uint64_t{gridDim.x} * blockDim.x, own = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const uint64_t apart = page_bytes / each;
  uint32_t sum = 0;
  for (uint32_t pass = 0; pass < passes; ++pass)
    for (uint64_t i = own; i < pages * each; i += 4 * threads) {
      uint32_t values[4] = {};
#pragma unroll
      for (uint32_t k = 0; k < 4; ++k) {
        const uint64_t at = i + k * threads, number = at / each;
        if (at >= pages * each) continue;
        const uint64_t page = is_shuffled ? number * 2654435761u % pages : number;
        const uint64_t offset = at % each * apart + (pass * 128 + (page * 640 & 4095)) % apart;
        values[k] = __ldcv(reinterpret_cast<const uint32_t*>(base + page * page_bytes + offset));
      }
      for (const uint32_t value : values) sum += value;
    }
  if (sum == 12345) *sink = sum;  // the compiler must not remove the loads
}

// Gathers rows of 64 bytes. Four lanes copy a row past the L1 cache, in 16-byte parts that are requested at once only
// if the place of the row in shared memory is a multiple of 64 bytes, too. Row i of the order is stored to row
// i % out_rows of the output, or not if out_rows is 0. The warps of a CTA take batches of rows from a common count.
constexpr uint32_t short_bytes = 64, gather_warps = 16, gather_stages = 4, batch_rows = 32, no_row = ~0u;
struct GatherStage {
  alignas(128) char rows[batch_rows * short_bytes];
  uint32_t outputs[batch_rows];
};
constexpr uint32_t gather_bytes = gather_warps * gather_stages * sizeof(GatherStage);
__global__ void __launch_bounds__(gather_warps * 32)
    gather_short_rows(const char* table, const uint32_t* order, uint32_t count, char* out, uint32_t out_rows) {
  extern __shared__ GatherStage all_stages[];
  __shared__ uint32_t taken;
  if (threadIdx.x == 0) taken = 0;
  __syncthreads();
  constexpr uint32_t neighbours = 16, lanes = 4, rows_at_a_time = 32 / lanes;
  const uint32_t lane = threadIdx.x % 32, part = lane % lanes * 16;
  GatherStage* const stages = all_stages + threadIdx.x / 32 * gather_stages;
  const auto start = [&](GatherStage& stage) {
    uint32_t number = 0;
    if (lane == 0) number = atomicAdd(&taken, 1u);
    number = __shfl_sync(~0u, number, 0);
    const uint32_t batch = (number / neighbours * gridDim.x + blockIdx.x) * neighbours + number % neighbours;
    const uint32_t position = batch * batch_rows + lane, row = position < count ? order[position] : no_row;
    stage.outputs[lane] = position < count ? position : no_row;
#pragma unroll
    for (uint32_t first = 0; first < batch_rows; first += rows_at_a_time) {
      const uint32_t to = first + lane / lanes, from = __shfl_sync(~0u, row, static_cast<int>(to));
      if (from != no_row)
        narrowcast::device::start_copy_of_16_bytes(stage.rows + to * short_bytes + part,
                                                   table + uint64_t{from} * short_bytes + part);
    }
    narrowcast::device::commit_copies();
  };
  for (uint32_t i = 0; i < gather_stages; ++i) start(stages[i]);
  uint32_t sum = 0;
  for (uint32_t i = 0;; i = i + 1 == gather_stages ? 0 : i + 1) {
    GatherStage& stage = stages[i];
    narrowcast::device::wait_for_all_but(gather_stages - 1);
    __syncwarp();
    if (stage.outputs[0] == no_row) break;
#pragma unroll
    for (uint32_t first = 0; first < batch_rows; first += rows_at_a_time) {
      const uint32_t row = first + lane / lanes, output = stage.outputs[row];
      const uint4 value = *reinterpret_cast<const uint4*>(stage.rows + row * short_bytes + part);
      sum += value.x;
      if (out_rows != 0 && output != no_row)
        __stcs(reinterpret_cast<uint4*>(out + uint64_t{output % out_rows} * short_bytes + part), value);
    }
    __syncwarp();
    start(stage);
  }
  if (sum == 12345) *out = 1;  // the compiler must not remove the loads
}

// Each warp stores every so many-th row.
__global__ void __launch_bounds__(512) store_rows(char* out, uint64_t rows, uint32_t row_bytes, uint64_t stride) {
  const narrowcast::store::cuda::Tile tile(32, static_cast<int>(threadIdx.x % 32));
  const uint32_t warps = blockDim.x / 32;
  for (uint64_t row = threadIdx.x / 32 * gridDim.x + blockIdx.x; row < rows; row += uint64_t{gridDim.x} * warps)
    narrowcast::store::cuda::store_zeros(tile, out + row * stride, row_bytes);
}

// A thread of each warp stores zeros with bulk copies of `part` bytes of shared memory.
constexpr uint32_t part = 16384;
__global__ void __launch_bounds__(512) store_bulk(char* out, uint64_t bytes) {
  __shared__ __align__(128) char zeros[part];
  for (uint32_t at = threadIdx.x * 16; at < part; at += blockDim.x * 16) *reinterpret_cast<uint4*>(zeros + at) = {};
  narrowcast::device::order_stores_before_bulk_copies();
  __syncthreads();
  if (threadIdx.x % 32 != 0) return;
  const uint64_t first = threadIdx.x / 32 * gridDim.x + blockIdx.x, warps = uint64_t{gridDim.x} * (blockDim.x / 32);
  for (uint64_t i = first; i < bytes / part; i += warps)
    narrowcast::device::bulk_store_by_thread(out + i * part, zeros, part);
  narrowcast::device::wait_for_store_sources_by_thread();
}

// Stores one of the four sectors of each line: all of its 32 bytes, or 4.
template <bool is_whole>
__global__ void __launch_bounds__(512) store_sectors(char* out, uint64_t lines) {
  constexpr uint32_t lanes = is_whole ? 2 : 1, unrolled = 4;
  const uint64_t threads = uint64_t{gridDim.x} * blockDim.x;
  uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i + (unrolled - 1) * threads < lines * lanes; i += unrolled * threads)
#pragma unroll
    for (uint32_t k = 0; k < unrolled; ++k) {
      const uint64_t line = (i + k * threads) / lanes;
      char* const to = out + line * 128 + line * 7 % 4 * 32 + i % lanes * 16;
      if constexpr (is_whole)
        __stcs(reinterpret_cast<uint4*>(to), uint4{});
      else
        __stcs(reinterpret_cast<uint32_t*>(to), 0u);
    }
}

}  // namespace

int main() {
  constexpr size_t memory_bytes = size_t{8} << 30, page_bytes = 65536, rows = 100000;
  constexpr uint32_t row_bytes = 5732, most_gathered = 4000000;
  void* const memory = mmap(nullptr, memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK_RESULT(cudaHostRegister(memory, memory_bytes, cudaHostRegisterMapped | cudaHostRegisterPortable));
  uint32_t* sink = nullptr;
  char* out = nullptr;
  CHECK_RESULT(cudaMalloc(&sink, sizeof *sink));
  CHECK_RESULT(cudaMalloc(&out, rows * 6000));
  cudaDeviceProp device;
  CHECK_RESULT(cudaGetDeviceProperties(&device, 0));
  std::printf("{\"device\": \"%s\", \"command\": \"store_limits\",\n \"million_reads_per_s\": [", device.name);
  bool is_first = true;
  for (const uint64_t gib : {1, 2, 4, 8})
    for (const uint32_t each : {1u, 8u})
      for (const bool is_shuffled : {false, true}) {
        const uint64_t pages = (gib << 30) / page_bytes;
        std::printf(
            "%s\n  {\"table_gib\": %d, \"page_bytes\": %zu, \"reads_of_a_page\": %u, \"order\": \"%s\", \"by_sms\": {",
            is_first ? "" : ",", static_cast<int>(gib), page_bytes, each, is_shuffled ? "shuffled" : "ascending");
        is_first = false;
        for (const uint32_t sms : {4u, 8u, 16u, 64u}) {
          const auto passes = static_cast<uint32_t>(std::max<uint64_t>(1, 262144 / (pages * each)));
          const double time = seconds(nullptr, 3, [&] {
            read_pages<<<sms, 1024>>>(static_cast<char*>(memory), pages, page_bytes, each, passes, is_shuffled, sink);
          });
          std::printf("%s\"%u\": %.1f", sms == 4 ? "" : ", ", sms,
                      static_cast<double>(pages * each * passes) / time / 1e6);
        }
        std::printf("}}");
      }
  std::printf("],\n \"rows_of_64_bytes\": [");
  uint32_t* order = nullptr;
  CHECK_RESULT(cudaMalloc(&order, most_gathered * sizeof *order));
  CHECK_RESULT(cudaFuncSetAttribute(gather_short_rows, cudaFuncAttributeMaxDynamicSharedMemorySize, gather_bytes));
  is_first = true;
  for (const uint64_t gib : {2, 4, 6, 8})
    for (const uint32_t count : {1000000u, most_gathered}) {
      std::mt19937_64 random(gib);
      std::vector<uint32_t> chosen(count);
      for (uint32_t& row : chosen) row = static_cast<uint32_t>(random() % ((gib << 30) / short_bytes));
      std::ranges::sort(chosen);
      CHECK_RESULT(cudaMemcpy(order, chosen.data(), count * sizeof *order, cudaMemcpyHostToDevice));
      for (const uint32_t out_rows : {0u, 16384u, count}) {
        std::printf("%s\n  {\"table_gib\": %d, \"gathered_rows\": %u, \"output_mib\": %.0f, \"gb_per_s_by_sms\": {",
                    is_first ? "" : ",", static_cast<int>(gib), count, out_rows * (short_bytes / 1048576.0));
        is_first = false;
        for (const uint32_t sms : {2u, 4u, 8u, 16u}) {
          const double time = seconds(nullptr, 5, [&] {
            gather_short_rows<<<sms, gather_warps * 32, gather_bytes>>>(static_cast<char*>(memory), order, count, out,
                                                                        out_rows);
          });
          std::printf("%s\"%u\": %.1f", sms == 2 ? "" : ", ", sms, count * double{short_bytes} / time / 1e9);
        }
        std::printf("}}");
      }
    }
  std::printf("],\n \"stored_gb_per_s\": [");
  for (const uint64_t stride : {5732, 5888}) {
    std::printf("%s\n  {\"row_bytes\": %u, \"stride\": %d, \"by_sms\": {", stride == 5732 ? "" : ",", row_bytes,
                static_cast<int>(stride));
    for (const uint32_t sms : {1u, 2u, 4u, 8u, 16u, 32u}) {
      const double time = seconds(nullptr, 3, [&] { store_rows<<<sms, 512>>>(out, rows, row_bytes, stride); });
      std::printf("%s\"%u\": %.0f", sms == 1 ? "" : ", ", sms, rows * row_bytes / time / 1e9);
    }
    std::printf("}}");
  }
  std::printf("],\n \"parts\": [");
  is_first = true;
  const auto list = [&](const char* name, double count, const std::function<void(uint32_t)>& run) {
    std::printf("%s\n  {\"stores\": \"%s\", \"by_sms\": {", is_first ? "" : ",", name);
    is_first = false;
    for (const uint32_t sms : {1u, 4u, 10u}) {
      const double time = seconds(nullptr, 3, [&] { run(sms); });
      std::printf("%s\"%u\": %.1f", sms == 1 ? "" : ", ", sms, count / time / 1e9);
    }
    std::printf("}}");
  };
  constexpr uint64_t bytes = rows * row_bytes / part * part;
  list("bulk copies of 16 KiB, GB/s", bytes, [&](uint32_t sms) { store_bulk<<<sms, 512>>>(out, bytes); });
  list("whole sectors, 1e9 a second", bytes / 128,
       [&](uint32_t sms) { store_sectors<true><<<sms, 512>>>(out, bytes / 128); });
  list("4 bytes of a sector, 1e9 a second", bytes / 128,
       [&](uint32_t sms) { store_sectors<false><<<sms, 512>>>(out, bytes / 128); });
  std::printf("]}\n");
  return 0;
}
