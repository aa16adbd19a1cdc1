// Launches of the block kernels.
#pragma once

#include "codec/cuda/reduce_value.cuh"
#include "collective/cuda/block_roles.cuh"

namespace narrowcast::collective::cuda {

// Calls function.operator()<Coding, Dtype>() with the coding of a dtype and codec.
template <typename Function>
cudaError_t with_coding(ncast_dtype dtype, ncast_codec codec, Function function) {
  return codec::cuda::dispatch_number(dtype, [&]<ncast_dtype Dtype>() {
    constexpr format::window::ValueType type = format::window::value_type(Dtype);
    if constexpr (type.value_bytes != 0) {
      if (codec == NCAST_CODEC_WINDOW) return function.template operator()<WindowCoding<Dtype>, Dtype>();
    }
    return function.template operator()<RawCoding, Dtype>();
  });
}

// One CTA an SM, with the shared memory that its warps need.
inline cudaError_t launch_roles(void (*kernel)(BlockCall), uint32_t ctas, uint32_t warps, size_t shared_bytes,
                                const BlockCall& call, cudaStream_t stream) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  if (error != cudaSuccess) return error;
  kernel<<<ctas, warps * 32, shared_bytes, stream>>>(call);
  return cudaGetLastError();
}

}  // namespace narrowcast::collective::cuda
