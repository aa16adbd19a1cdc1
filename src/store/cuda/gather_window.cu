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
  }                                                                      \
  __global__ void __launch_bounds__(max_coded_warps * 32, 1)             \
      teams_##name(const __grid_constant__ GatherArguments arguments) {  \
    extern __shared__ char shared_memory[];                              \
    gather<WindowRow<type, Team>>(arguments, shared_memory);             \
  }
GATHER_KERNEL(bfloat16, window::bfloat16)
GATHER_KERNEL(float16, window::float16)
GATHER_KERNEL(trimmed_float16, trimmed_float16)
GATHER_KERNEL(float32, window::float32)
GATHER_KERNEL(float32_24, float32_24)
GATHER_KERNEL(float32_16, float32_16)
GATHER_KERNEL(float64, window::float64)
GATHER_KERNEL(float8_e4m3, window::float8_e4m3)
GATHER_KERNEL(float8_e5m2, window::float8_e5m2)
#undef GATHER_KERNEL
__global__ void __launch_bounds__(max_coded_warps * 32, 1)
    gather_short_bfloat16(const __grid_constant__ GatherArguments arguments) {
  extern __shared__ char shared_memory[];
  gather<WindowRow<window::bfloat16, LaneRows>>(arguments, shared_memory);
}

using Kernel = void (*)(GatherArguments);
const void* pointer(Kernel kernel) { return reinterpret_cast<const void*>(kernel); }

}  // namespace

GatherKernel window_kernel(ncast_dtype dtype, uint32_t low_bits) {
  const auto kernels = [](Kernel kernel, uint32_t staged_bytes, Kernel for_teams) {
    return GatherKernel{pointer(kernel), staged_bytes, pointer(for_teams), nullptr};
  };
  switch (dtype) {
    case NCAST_BFLOAT16: return {pointer(gather_bfloat16), 2, pointer(teams_bfloat16), pointer(gather_short_bfloat16)};
    case NCAST_FLOAT16:
      return low_bits == 0 ? kernels(gather_float16, 2, teams_float16)
                           : kernels(gather_trimmed_float16, 2, teams_trimmed_float16);
    case NCAST_FLOAT32:
      return low_bits == 0   ? kernels(gather_float32, 4, teams_float32)
             : low_bits == 8 ? kernels(gather_float32_24, 4, teams_float32_24)
                             : kernels(gather_float32_16, 4, teams_float32_16);
    case NCAST_FLOAT64: return kernels(gather_float64, 8, teams_float64);
    case NCAST_FLOAT8_E4M3: return kernels(gather_float8_e4m3, 1, teams_float8_e4m3);
    case NCAST_FLOAT8_E5M2: return kernels(gather_float8_e5m2, 1, teams_float8_e5m2);
    default: return {nullptr, 0, nullptr, nullptr};
  }
}

}  // namespace narrowcast::store::cuda
