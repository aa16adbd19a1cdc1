// The gather kernels of the coder `window`.
#include "store/cuda/gather.cuh"
#include "store/cuda/kernels.h"
#include "store/cuda/window_row.cuh"

namespace narrowcast::store::cuda {
namespace {

#define GATHER_KERNEL(name, type)                                        \
  __global__ void __launch_bounds__(max_coded_warps * 32, 1)             \
      gather_##name(const __grid_constant__ GatherArguments arguments) { \
    extern __shared__ char shared_memory[];                              \
    gather<WindowRow<type>>(arguments, shared_memory);                   \
  }
GATHER_KERNEL(bfloat16, window::bfloat16)
GATHER_KERNEL(float16, window::float16)
GATHER_KERNEL(trimmed_float16, trimmed_float16)
GATHER_KERNEL(float32, window::float32)
GATHER_KERNEL(float64, window::float64)
GATHER_KERNEL(float8_e4m3, window::float8_e4m3)
GATHER_KERNEL(float8_e5m2, window::float8_e5m2)
#undef GATHER_KERNEL

const void* pointer(void (*kernel)(GatherArguments)) { return reinterpret_cast<const void*>(kernel); }

}  // namespace

GatherKernel window_kernel(ncast_dtype dtype, uint32_t low_bits) {
  switch (dtype) {
    case NCAST_BFLOAT16: return {pointer(gather_bfloat16), 2};
    case NCAST_FLOAT16: return {pointer(low_bits == 0 ? gather_float16 : gather_trimmed_float16), 2};
    case NCAST_FLOAT32: return {pointer(gather_float32), 4};
    case NCAST_FLOAT64: return {pointer(gather_float64), 8};
    case NCAST_FLOAT8_E4M3: return {pointer(gather_float8_e4m3), 1};
    case NCAST_FLOAT8_E5M2: return {pointer(gather_float8_e5m2), 1};
    default: return {nullptr, 0};
  }
}

}  // namespace narrowcast::store::cuda
