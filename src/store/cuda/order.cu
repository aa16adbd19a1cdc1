#include "device/early_launch.cuh"
#include "device/ptx/system_memory.cuh"
#include "store/cuda/call_words.cuh"
#include "store/cuda/order.h"
#include "store/cuda/page_order.cuh"

namespace narrowcast::store::cuda {
namespace {

constexpr size_t alignment = 256;
size_t aligned(size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

__global__ void start_call_kernel(CallWords reader, TableWords table, TableState* state) {
  if (threadIdx.x == 0) start_call_by_thread(reader, table, state);
}

__global__ void __launch_bounds__(order_threads) count_pages_kernel(OrderArguments arguments) {
  extern __shared__ uint32_t shared_words[];
  count_pages(arguments, shared_words);
}
template <uint32_t of_thread>
__global__ void __launch_bounds__(order_threads) place_entries_kernel(OrderArguments arguments) {
  extern __shared__ uint64_t shared_entries[];
  place_entries<of_thread>(arguments, shared_entries);
}

struct PlaceKernel {
  const void* function;
  uint32_t shared_bytes;
};
// For CTAs of `share` indices. The kernel for few of them takes less time if it has room for all.
PlaceKernel place_kernel(const Pages& pages, const GatherMachine& machine, uint64_t share) {
  const uint32_t for_many = order_shared_bytes(pages, many_ordered);
  if (share > few_ordered * order_threads && for_many <= machine.shared_bytes)
    return {reinterpret_cast<const void*>(place_entries_kernel<many_ordered>), for_many};
  return {reinterpret_cast<const void*>(place_entries_kernel<few_ordered>), order_shared_bytes(pages, few_ordered)};
}

}  // namespace

cudaError_t start_call(const CallWords& reader, const TableWords& table, TableState* state, cudaStream_t stream) {
  return device::launch(reinterpret_cast<const void*>(start_call_kernel), 1, 1, 0, stream, false, reader, table, state);
}

size_t order_workspace_bytes(uint64_t count, const Pages& pages) {
  return aligned(count * sizeof(uint64_t)) + order_ctas(count, max_order_ctas) * pages.count * sizeof(uint32_t);
}

cudaError_t prepare_order(const GatherMachine& machine) {
  cudaError_t error = cudaSuccess;
  for (const auto function : {place_entries_kernel<few_ordered>, place_entries_kernel<many_ordered>})
    if (error == cudaSuccess)
      error = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(machine.shared_bytes));
  return error;
}

cudaError_t order_by_page(const void* indices, uint32_t index_bytes, uint64_t count, const Pages& pages,
                          void* workspace, const GatherMachine& machine, uint32_t sms, cudaStream_t stream) {
  auto* const counts = reinterpret_cast<uint32_t*>(static_cast<char*>(workspace) + aligned(count * sizeof(uint64_t)));
  const OrderArguments arguments = {indices, index_bytes, count, pages, static_cast<uint64_t*>(workspace), counts};
  const uint32_t ctas = order_ctas(count, sms);
  const cudaError_t error = device::launch(reinterpret_cast<const void*>(count_pages_kernel), ctas, order_threads / 32,
                                           words_of_pages(pages) * sizeof(uint32_t), stream, false, arguments);
  if (error != cudaSuccess) return error;
  // Starts when the CTAs of the other kernel end.
  const PlaceKernel place = place_kernel(pages, machine, (count + ctas - 1) / ctas);
  return device::launch(place.function, ctas, order_threads / 32, place.shared_bytes, stream, true, arguments);
}

}  // namespace narrowcast::store::cuda
