#include <cub/device/device_radix_sort.cuh>

#include "device/ptx/system_memory.cuh"
#include "store/cuda/call_start.cuh"
#include "store/cuda/order.h"

namespace narrowcast::store::cuda {
namespace {

constexpr size_t alignment = 256;
size_t aligned(size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

__global__ void start_call_kernel(CallWords reader, TableWords table, TableState* state) {
  start_call_by_thread(reader, table, state);
}

__global__ void page_keys_kernel(const void* indices, uint32_t index_bytes, uint64_t count, PageOrder order,
                                 uint32_t* keys, uint32_t* positions) {
  const uint64_t apart = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += apart) {
    keys[i] = page_of(indices, index_bytes, i, order.page_shift, order.page_bits);
    positions[i] = static_cast<uint32_t>(i);
  }
}

cudaError_t sort(void* temporary, size_t* temporary_bytes, const uint32_t* keys, uint32_t* sorted_keys,
                 const uint32_t* positions, uint32_t* sorted_positions, uint64_t count, const PageOrder& order,
                 cudaStream_t stream) {
  return cub::DeviceRadixSort::SortPairs(temporary, *temporary_bytes, keys, sorted_keys, positions, sorted_positions,
                                         static_cast<int64_t>(count), 0, static_cast<int>(order.page_bits), stream);
}

}  // namespace

cudaError_t start_call(const CallWords& reader, const TableWords& table, TableState* state, cudaStream_t stream) {
  // cudaGetLastError() could return an earlier error of the thread. The call would then have started, and never end.
  CallWords words = reader;
  TableWords table_words = table;
  void* arguments[] = {&words, &table_words, &state};
  return cudaLaunchKernel(reinterpret_cast<const void*>(start_call_kernel), dim3(1), dim3(1), arguments, 0, stream);
}

size_t order_workspace_bytes(uint64_t count, const PageOrder& order) {
  size_t temporary = 0;
  if (sort(nullptr, &temporary, nullptr, nullptr, nullptr, nullptr, count, order, nullptr) != cudaSuccess) return 0;
  return 4 * aligned(count * 4) + temporary;
}

cudaError_t order_by_page(const void* indices, uint32_t index_bytes, uint64_t count, const PageOrder& order,
                          void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  const size_t part = aligned(count * 4);
  if (workspace_bytes < 4 * part) return cudaErrorInvalidValue;
  const auto array = [&](size_t number) {
    return reinterpret_cast<uint32_t*>(static_cast<char*>(workspace) + number * part);
  };
  uint32_t* const keys = array(1);
  uint32_t* const positions = array(2);
  constexpr uint32_t threads = 256, max_ctas = 256;
  const auto ctas = static_cast<uint32_t>(std::min<uint64_t>((count + threads - 1) / threads, max_ctas));
  page_keys_kernel<<<ctas, threads, 0, stream>>>(indices, index_bytes, count, order, keys, positions);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  size_t temporary_bytes = workspace_bytes - 4 * part;
  return sort(static_cast<char*>(workspace) + 4 * part, &temporary_bytes, keys, array(3), positions, array(0), count,
              order, stream);
}

}  // namespace narrowcast::store::cuda
