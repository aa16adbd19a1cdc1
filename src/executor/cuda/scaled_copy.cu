#include <algorithm>

#include "executor/cuda/kernels.h"
#include "executor/cuda/scale.cuh"
#include "executor/cuda/scaled_copy.h"

namespace narrowcast::executor::cuda {
namespace {

constexpr uint32_t copy_threads = 256, most_copy_ctas = 1024;

template <ncast_dtype Dtype>
__global__ void __launch_bounds__(copy_threads)
    copy_scaled(const char* from, char* to, uint64_t count, const __grid_constant__ Factor factor) {
  constexpr uint64_t bytes = sizeof(typename Number<Dtype>::Value);
  const auto number = number_of<Dtype>(factor);
  for (uint64_t at = uint64_t{blockIdx.x} * copy_threads + threadIdx.x; at < count; at += gridDim.x * copy_threads) {
    uint64_t word = 0;
    memcpy(&word, __builtin_assume_aligned(from + at * bytes, bytes), bytes);
    word = scaled_word<Dtype>(word, number);
    memcpy(__builtin_assume_aligned(to + at * bytes, bytes), &word, bytes);
  }
}

template <typename Body>
cudaError_t with_kernel(ncast_dtype dtype, Body body) {
  return codec::cuda::dispatch_number(dtype, [&]<ncast_dtype Dtype>() {
    if constexpr (can_scale<Dtype>)
      return body(copy_scaled<Dtype>);
    else
      return cudaErrorInvalidValue;
  });
}

}  // namespace

cudaError_t load_scaled_copies() {
  for (int number = NCAST_FLOAT16; ncast_dtype_bytes(static_cast<ncast_dtype>(number)) != 0; ++number)
    if (const cudaError_t error =
            with_kernel(static_cast<ncast_dtype>(number), [](auto kernel) { return load_kernel(kernel); }))
      return error;
  return cudaSuccess;
}

cudaError_t launch_scaled_copy(const void* from, void* to, uint64_t count, ncast_dtype dtype, const Factor& factor,
                               cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const auto ctas =
      static_cast<uint32_t>(std::min<uint64_t>((count + copy_threads - 1) / copy_threads, most_copy_ctas));
  return with_kernel(dtype, [&](auto kernel) {
    kernel<<<ctas, copy_threads, 0, stream>>>(static_cast<const char*>(from), static_cast<char*>(to), count, factor);
    return cudaGetLastError();
  });
}

}  // namespace narrowcast::executor::cuda
