// How the block kernels are loaded and launched.
#include "codec/kernel_table.h"
#include "device/early_launch.cuh"
#include "executor/cuda/blocks/kernels.h"
#include "executor/cuda/blocks/roles.cuh"
#include "executor/cuda/kernels.h"

namespace narrowcast::executor::cuda {
namespace {

using codec::Kernel;
using codec::KernelKind;

inline constexpr uint32_t own_copy_warps = 16;

__global__ void __launch_bounds__(own_copy_warps * 32, 1) copy_own(const __grid_constant__ OwnCopy own) {
  copy_own_blocks(own, device::warp_id() * gridDim.x + blockIdx.x, own_copy_warps * gridDim.x, device::lane_id());
}

// An SM divides its memory into shared memory and cache before the first CTA comes: there is to be room for the others.
cudaError_t load_block_kernel(const Kernel& kernel) {
  cudaFuncAttributes attributes;
  if (const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel.function)) return error;
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize, int{most_shared_bytes}))
    return error;
  return cudaFuncSetAttribute(kernel.function, cudaFuncAttributePreferredSharedMemoryCarveout,
                              cudaSharedmemCarveoutMaxShared);
}

cudaError_t launch(KernelKind kind, const BlockCall& call, ncast_dtype dtype, uint32_t ctas, cudaStream_t stream) {
  const Kernel* const kernel = codec::find_kernel(kind, call.codec, dtype);
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  return device::launch(kernel->function, ctas, kernel->max_warps, kernel->cta_bytes, stream, true, call);
}

}  // namespace

cudaError_t load_block_kernels() {
  if (const cudaError_t error = load_kernel(copy_own)) return error;
  cudaError_t result = cudaSuccess;
  for (const KernelKind kind : {KernelKind::move, KernelKind::relay, KernelKind::reduce}) {
    const auto load = [](void* first_error, const Kernel& kernel) {
      auto* const error = static_cast<cudaError_t*>(first_error);
      if (*error == cudaSuccess) *error = load_block_kernel(kernel);
    };
    codec::visit_kernels(kind, load, &result);
  }
  return result;
}

cudaError_t launch_own_copy(const OwnCopy& own, uint32_t ctas, cudaStream_t stream) {
  // The driver copies well at any alignment, but with CTAs on all SMs, which keep the call's waiting if they come
  // first.
  if (ctas == 0 || !is_aligned(own))
    return cudaMemcpyAsync(own.to, own.from, own.bytes, cudaMemcpyDeviceToDevice, stream);
  copy_own<<<ctas, own_copy_warps * 32, 0, stream>>>(own);
  return cudaGetLastError();
}

cudaError_t launch_moves(const BlockCall& call, ncast_dtype dtype, uint32_t ctas, cudaStream_t stream) {
  return launch(call.relayed != 0 ? KernelKind::relay : KernelKind::move, call, dtype, ctas, stream);
}

cudaError_t launch_reduction(const BlockCall& call, ncast_dtype dtype, uint32_t ctas, cudaStream_t stream) {
  return launch(KernelKind::reduce, call, dtype, ctas, stream);
}

}  // namespace narrowcast::executor::cuda
