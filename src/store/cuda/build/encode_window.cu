// The kernels that encode rows with the coder `window`.
#include "store/cuda/build/encode_kernels.h"
#include "store/cuda/build/encode_window.cuh"

namespace narrowcast::store::cuda {
namespace {

// Kernels are no templates: nvcc cannot name those whose parameters are structs.
#define ENCODE_KERNEL(name, ...)                                         \
  using Row_##name = EncodeWindow<__VA_ARGS__>;                          \
  __global__ void __launch_bounds__(encode_warps * 32)                   \
      encode_##name(const __grid_constant__ EncodeArguments arguments) { \
    extern __shared__ __align__(16) char shared_memory[];                \
    encode_rows<Row_##name>(arguments, shared_memory);                   \
  }                                                                      \
  EncodeKernel name##_kernel() { return kernel_of<Row_##name>(encode_##name); }
// For rows of any length, and for short ones: for few elements, choosing the window takes longer than coding them.
#define ENCODE_KERNELS(name, ...)      \
  ENCODE_KERNEL(name, __VA_ARGS__, 32) \
  ENCODE_KERNEL(short_##name, __VA_ARGS__, short_row_lanes)
ENCODE_KERNELS(bfloat16, window::bfloat16, false)
ENCODE_KERNELS(float16, window::float16, false)
ENCODE_KERNELS(trimmed_float16, window::float16, true)
ENCODE_KERNELS(float32, window::float32, false)
ENCODE_KERNELS(float64, window::float64, false)
ENCODE_KERNELS(float8_e4m3, window::float8_e4m3, false)
ENCODE_KERNELS(float8_e5m2, window::float8_e5m2, false)
#undef ENCODE_KERNELS
#undef ENCODE_KERNEL

}  // namespace

EncodeKernel window_encoder(const Model& model) {
  const bool is_short = !model.has_zeros && model.shape.elems <= 32 * short_row_lanes;
  switch (model.shape.dtype) {
    case NCAST_BFLOAT16: return is_short ? short_bfloat16_kernel() : bfloat16_kernel();
    case NCAST_FLOAT16:
      if (model.trim.low_bits != 0) return is_short ? short_trimmed_float16_kernel() : trimmed_float16_kernel();
      return is_short ? short_float16_kernel() : float16_kernel();
    case NCAST_FLOAT32: return is_short ? short_float32_kernel() : float32_kernel();
    case NCAST_FLOAT64: return is_short ? short_float64_kernel() : float64_kernel();
    case NCAST_FLOAT8_E4M3: return is_short ? short_float8_e4m3_kernel() : float8_e4m3_kernel();
    case NCAST_FLOAT8_E5M2: return is_short ? short_float8_e5m2_kernel() : float8_e5m2_kernel();
    default: return {};
  }
}

}  // namespace narrowcast::store::cuda
