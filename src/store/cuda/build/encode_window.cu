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
  EncodeKernel name##_kernel() { return {encode_##name, encode_warps * sizeof(Row_##name::Shared)}; }
ENCODE_KERNEL(bfloat16, window::bfloat16)
ENCODE_KERNEL(float16, window::float16)
ENCODE_KERNEL(trimmed_float16, window::float16, true)
ENCODE_KERNEL(float32, window::float32)
ENCODE_KERNEL(float64, window::float64)
ENCODE_KERNEL(float8_e4m3, window::float8_e4m3)
ENCODE_KERNEL(float8_e5m2, window::float8_e5m2)
#undef ENCODE_KERNEL

}  // namespace

EncodeKernel window_encoder(ncast_dtype dtype, uint32_t low_bits) {
  switch (dtype) {
    case NCAST_BFLOAT16: return bfloat16_kernel();
    case NCAST_FLOAT16: return low_bits == 0 ? float16_kernel() : trimmed_float16_kernel();
    case NCAST_FLOAT32: return float32_kernel();
    case NCAST_FLOAT64: return float64_kernel();
    case NCAST_FLOAT8_E4M3: return float8_e4m3_kernel();
    case NCAST_FLOAT8_E5M2: return float8_e5m2_kernel();
    default: return {nullptr, 0};
  }
}

}  // namespace narrowcast::store::cuda
