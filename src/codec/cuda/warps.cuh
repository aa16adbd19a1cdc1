// How the codec kernels lay out a CTA: independent warps, each with room for one block's values and its payload.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "codec/window/kernel.cuh"
#include "device/ptx/bulk_copy.cuh"

namespace narrowcast::codec::cuda {

template <format::window::ValueType Type>
struct alignas(128) WarpMemory {
  using Block = window::Block<Type>;
  char values[Block::values_bytes];
  char payload[Block::payload_capacity];
  typename Block::Scratch scratch;
  uint64_t barrier;
};

// One CTA an SM, as many warps as shared memory holds: every warp hides the others' latencies.
template <format::window::ValueType Type>
inline constexpr int warps_per_cta = Type.block_bytes() > 4096 ? 12 : 24;

// Copies within the warp's reach where a bulk copy cannot go: any alignment, any count of bytes.
__device__ inline void copy_bytes(char* to, const char* from, uint32_t bytes, int lane) {
  for (uint32_t at = lane; at < bytes; at += 32) to[at] = from[at];
}
// The same for a whole block, by values: both pointers are aligned to the value type.
template <format::window::ValueType Type>
__device__ void copy_block(char* to, const char* from, int lane) {
  using Word = std::conditional_t<Type.value_bytes == 1, uint8_t,
                                  std::conditional_t<Type.value_bytes == 2, uint16_t,
                                                     std::conditional_t<Type.value_bytes == 4, uint32_t, uint64_t>>>;
#pragma unroll 8
  for (int i = lane; i < Type.block_elems(); i += 32)
    reinterpret_cast<Word*>(to)[i] = reinterpret_cast<const Word*>(from)[i];
}

__device__ inline bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % format::alignment == 0;
}

// CTAs for `units` of work of which a CTA takes `units_per_cta` at a time.
inline cudaError_t grid_size(uint64_t units, uint64_t units_per_cta, uint32_t max_ctas, uint32_t* ctas) {
  int device = 0, sms = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  const uint64_t wanted = (units + units_per_cta - 1) / units_per_cta;
  const uint64_t most = max_ctas != 0 ? max_ctas : static_cast<uint64_t>(sms);
  *ctas = static_cast<uint32_t>(std::max<uint64_t>(1, std::min(wanted, most)));
  return cudaSuccess;
}

// Calls launch.operator()<Dtype>() for a dtype that `window` handles. (Kernels take the dtype, an enum, and not the
// ValueType: nvcc cannot name a kernel by a value of class type.)
template <typename Function>
cudaError_t dispatch(ncast_dtype dtype, Function launch) {
  switch (dtype) {
    case NCAST_BFLOAT16: return launch.template operator()<NCAST_BFLOAT16>();
    case NCAST_FLOAT16: return launch.template operator()<NCAST_FLOAT16>();
    case NCAST_FLOAT32: return launch.template operator()<NCAST_FLOAT32>();
    case NCAST_FLOAT64: return launch.template operator()<NCAST_FLOAT64>();
    case NCAST_FLOAT8_E4M3: return launch.template operator()<NCAST_FLOAT8_E4M3>();
    case NCAST_FLOAT8_E5M2: return launch.template operator()<NCAST_FLOAT8_E5M2>();
    default: return cudaErrorInvalidValue;
  }
}

// Raises a kernel's shared-memory limit and launches it with one WarpMemory a warp (and `extra` bytes).
template <format::window::ValueType Type, typename... Parameters, typename... Arguments>
cudaError_t launch_warps(void (*kernel)(Parameters...), uint32_t ctas, size_t extra, cudaStream_t stream,
                         Arguments... arguments) {
  const size_t shared = warps_per_cta<Type> * sizeof(WarpMemory<Type>) + extra;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
  if (error != cudaSuccess) return error;
  kernel<<<ctas, warps_per_cta<Type> * 32, shared, stream>>>(arguments...);
  return cudaGetLastError();
}

}  // namespace narrowcast::codec::cuda
