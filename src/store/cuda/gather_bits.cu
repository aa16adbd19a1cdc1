// The gather kernels of the coders `raw`, `plain` and `invariant`.
#include "store/cuda/bits_row.cuh"
#include "store/cuda/gather.cuh"
#include "store/cuda/kernels.h"
#include "store/cuda/raw_row.cuh"

namespace narrowcast::store::cuda {
namespace {

#define GATHER_KERNEL(name, coder, max_warps)                            \
  __global__ void __launch_bounds__(max_warps * 32, 1)                   \
      gather_##name(const __grid_constant__ GatherArguments arguments) { \
    extern __shared__ char shared_memory[];                              \
    gather<coder>(arguments, shared_memory);                             \
  }
GATHER_KERNEL(raw, RawRow<>, max_raw_warps)
GATHER_KERNEL(short_raw, RawRow<LaneRows>, max_raw_warps)
GATHER_KERNEL(plain_1, PlainRow<uint8_t>, max_coded_warps)
GATHER_KERNEL(plain_2, PlainRow<uint16_t>, max_coded_warps)
GATHER_KERNEL(plain_4, PlainRow<uint32_t>, max_coded_warps)
GATHER_KERNEL(plain_8, PlainRow<uint64_t>, max_coded_warps)
GATHER_KERNEL(invariant_1, InvariantRow<uint8_t>, max_coded_warps)
GATHER_KERNEL(invariant_2, InvariantRow<uint16_t>, max_coded_warps)
GATHER_KERNEL(invariant_4, InvariantRow<uint32_t>, max_coded_warps)
GATHER_KERNEL(invariant_8, InvariantRow<uint64_t>, max_coded_warps)
#undef GATHER_KERNEL

const void* pointer(void (*kernel)(GatherArguments)) { return reinterpret_cast<const void*>(kernel); }

}  // namespace

GatherKernel raw_kernel() { return {pointer(gather_raw), 0, nullptr, pointer(gather_short_raw)}; }

GatherKernel plain_kernel(uint32_t elem_bytes) {
  switch (elem_bytes) {
    case 1: return {pointer(gather_plain_1), 1, nullptr, nullptr};
    case 2: return {pointer(gather_plain_2), 2, nullptr, nullptr};
    case 4: return {pointer(gather_plain_4), 4, nullptr, nullptr};
    default: return {pointer(gather_plain_8), 8, nullptr, nullptr};
  }
}

GatherKernel invariant_kernel(uint32_t chunk_bytes) {
  switch (chunk_bytes) {
    case 1: return {pointer(gather_invariant_1), 1, nullptr, nullptr};
    case 2: return {pointer(gather_invariant_2), 2, nullptr, nullptr};
    case 4: return {pointer(gather_invariant_4), 4, nullptr, nullptr};
    default: return {pointer(gather_invariant_8), 8, nullptr, nullptr};
  }
}

}  // namespace narrowcast::store::cuda
