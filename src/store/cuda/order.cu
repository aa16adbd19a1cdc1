#include "device/ptx/system_memory.cuh"
#include "store/cuda/call_words.cuh"
#include "store/cuda/order.h"
#include "store/cuda/page_order.cuh"

namespace narrowcast::store::cuda {
namespace {

constexpr size_t alignment = 256;
size_t aligned(size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

__global__ void start_call_kernel(CallWords reader, TableWords table, TableState* state) {
  start_call_by_thread(reader, table, state);
}

__global__ void __launch_bounds__(order_threads) count_pages_kernel(OrderArguments arguments) {
  extern __shared__ uint32_t shared_words[];
  count_pages(arguments, shared_words);
}
__global__ void __launch_bounds__(order_threads) place_entries_kernel(OrderArguments arguments) {
  extern __shared__ uint32_t shared_words[];
  place_entries(arguments, shared_words);
}

// cudaGetLastError() could return an earlier error of the thread. A call would then have started, and never end.
template <typename... Arguments>
cudaError_t launch(void (*kernel)(Arguments...), uint32_t ctas, uint32_t threads, size_t shared_bytes,
                   cudaStream_t stream, Arguments... arguments) {
  void* pointers[] = {&arguments...};
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(ctas), dim3(threads), pointers, shared_bytes,
                          stream);
}

}  // namespace

cudaError_t start_call(const CallWords& reader, const TableWords& table, TableState* state, cudaStream_t stream) {
  return launch(start_call_kernel, 1, 1, 0, stream, reader, table, state);
}

size_t order_workspace_bytes(uint64_t count, const Pages& pages) {
  return aligned(count * sizeof(uint64_t)) + order_ctas(count, max_order_ctas) * pages.count * sizeof(uint32_t);
}

cudaError_t order_by_page(const void* indices, uint32_t index_bytes, uint64_t count, const Pages& pages,
                          void* workspace, uint32_t sms, cudaStream_t stream) {
  auto* const counts = reinterpret_cast<uint32_t*>(static_cast<char*>(workspace) + aligned(count * sizeof(uint64_t)));
  const OrderArguments arguments = {indices, index_bytes, count, pages, static_cast<uint64_t*>(workspace), counts};
  const size_t shared_bytes = (pages.count + 32) * sizeof(uint32_t);
  const uint32_t ctas = order_ctas(count, sms);
  const cudaError_t error = launch(count_pages_kernel, ctas, order_threads, shared_bytes, stream, arguments);
  if (error != cudaSuccess) return error;
  return launch(place_entries_kernel, ctas, order_threads, shared_bytes, stream, arguments);
}

}  // namespace narrowcast::store::cuda
