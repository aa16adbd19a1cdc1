// Loads and launches the block kernels.
#include "codec/kernel_table.h"
#include "device/early_launch.cuh"
#include "executor/cuda/blocks/kernels.h"
#include "executor/cuda/blocks/roles.cuh"
#include "executor/cuda/kernels.h"
#include "operation/scaled_sum.h"
#include "select/block_split.h"

namespace narrowcast::executor::cuda {
namespace {

using codec::Kernel;
using codec::KernelKind;

inline constexpr uint32_t local_copy_warps = 16;

__global__ void __launch_bounds__(local_copy_warps * 32, 1) copy_local(const __grid_constant__ LocalCopy copy) {
  copy_local_blocks(copy, device::warp_id() * gridDim.x + blockIdx.x, local_copy_warps * gridDim.x, device::lane_id());
}

// The codec that has the kernels of a call.
ncast_codec codec_of(const BlockCall& call) { return call.codec == NCAST_CODEC_RAW ? call.result_codec : call.codec; }

cudaError_t launch(KernelKind kind, const BlockCall& call, ncast_dtype dtype, const Grid& grid, cudaStream_t stream) {
  const Kernel* const kernel = codec::find_kernel(kind, codec_of(call), dtype);
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  return device::launch_clusters(kernel->function, grid.ctas, grid.cluster_ctas, grid.warps, grid.shared_bytes, stream,
                                 true, call);
}

}  // namespace

// The split between shared memory and L1 cache is fixed when the first CTA starts on an SM. The largest carveout leaves
// room for the CTAs that start later.
cudaError_t load_block_kernel(const void* function) {
  cudaFuncAttributes attributes;
  if (const cudaError_t error = cudaFuncGetAttributes(&attributes, function)) return error;
  int device = 0, shared_bytes = 0;
  if (const cudaError_t error = cudaGetDevice(&device)) return error;
  if (const cudaError_t error = cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device))
    return error;
  if (const cudaError_t error =
          cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes))
    return error;
  return cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
}

cudaError_t load_block_kernels() {
  if (const cudaError_t error = load_kernel(copy_local)) return error;
  cudaError_t result = cudaSuccess;
  for (const KernelKind kind : {KernelKind::move, KernelKind::relay, KernelKind::reduce, KernelKind::reduce_sum}) {
    const auto load = [](void* first_error, const Kernel& kernel) {
      auto* const error = static_cast<cudaError_t*>(first_error);
      if (*error == cudaSuccess) *error = load_block_kernel(kernel.function);
    };
    codec::visit_kernels(kind, load, &result);
  }
  return result;
}

cudaError_t find_max_clusters(uint32_t shared_bytes, int* clusters) {
  *clusters = 0;
  if (!device::runs_hopper_code()) return cudaSuccess;
  int device = 0, has_clusters = 0;
  if (const cudaError_t error = cudaGetDevice(&device)) return error;
  if (const cudaError_t error = cudaDeviceGetAttribute(&has_clusters, cudaDevAttrClusterLaunch, device)) return error;
  if (has_clusters == 0) return cudaSuccess;
  const Kernel* const kernel = codec::find_kernel(KernelKind::reduce, NCAST_CODEC_RAW, NCAST_FLOAT32);
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  if (const cudaError_t error = load_block_kernel(kernel->function)) return error;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = cluster_ctas;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = cluster_ctas;
  config.blockDim = reduce_warps(shared_bytes, 4096, sizeof(float)) * 32;
  config.dynamicSmemBytes = shared_bytes;  // all kernels that reduce use about as much
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaOccupancyMaxActiveClusters(clusters, kernel->function, &config);
}

cudaError_t launch_local_copy(const LocalCopy& copy, uint32_t ctas, cudaStream_t stream) {
  // The driver copies fast at any alignment, but it uses CTAs on all SMs, which delay the CTAs of the call if they
  // start first.
  if (ctas == 0 || !is_aligned(copy))
    return cudaMemcpyAsync(copy.to, copy.from, copy.bytes, cudaMemcpyDeviceToDevice, stream);
  copy_local<<<ctas, local_copy_warps * 32, 0, stream>>>(copy);
  return cudaGetLastError();
}

cudaError_t launch_moves(const BlockCall& call, ncast_dtype dtype, const Grid& grid, cudaStream_t stream) {
  return launch(call.relayed != 0 ? KernelKind::relay : KernelKind::move, call, dtype, grid, stream);
}

cudaError_t launch_reduction(const BlockCall& call, ncast_dtype dtype, const Grid& grid, cudaStream_t stream) {
  const bool adds = call.op == NCAST_SUM || call.op == operation::scaled_sum;
  const bool is_sum = adds && codec::find_kernel(KernelKind::reduce_sum, codec_of(call), dtype) != nullptr;
  return launch(is_sum ? KernelKind::reduce_sum : KernelKind::reduce, call, dtype, grid, stream);
}

}  // namespace narrowcast::executor::cuda
