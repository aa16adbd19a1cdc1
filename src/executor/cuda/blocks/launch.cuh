// How the block kernels are loaded and launched.
#pragma once

#include "codec/frame/cuda/reduce_value.cuh"
#include "device/early_launch.cuh"
#include "executor/cuda/blocks/warp.cuh"
#include "executor/cuda/kernels.h"

namespace narrowcast::executor::cuda {

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

// As with_coding, for every dtype and codec, until one fails.
template <typename Function>
cudaError_t for_each_coding(Function function) {
  for (int dtype = 0; ncast_dtype_bytes(static_cast<ncast_dtype>(dtype)) != 0; ++dtype)
    for (const ncast_codec codec : {NCAST_CODEC_RAW, NCAST_CODEC_WINDOW})
      if (const cudaError_t error = with_coding(static_cast<ncast_dtype>(dtype), codec, function)) return error;
  return cudaSuccess;
}

// An SM divides its memory into shared memory and cache before the first CTA comes: there is to be room for the others.
inline cudaError_t load_block_kernel(void (*kernel)(BlockCall)) {
  if (const cudaError_t error = load_kernel(kernel)) return error;
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int{most_shared_bytes}))
    return error;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
}
inline cudaError_t launch_block_kernel(void (*kernel)(BlockCall), uint32_t ctas, uint32_t warps, size_t shared_bytes,
                                       const BlockCall& call, cudaStream_t stream) {
  return device::launch_early(kernel, ctas, warps, shared_bytes, stream, call);
}

}  // namespace narrowcast::executor::cuda
