#include <cuda_runtime.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "channel/peer/failure.h"
#include "codec/codec.h"
#include "codec/kernel_table.h"
#include "executor/cuda/generated/codec_kernels.h"
#include "executor/cuda/generated/cubin_cache.h"
#include "executor/cuda/generated/loaded_kernels.h"
#include "select/block_shape.h"
#include "status/error.h"

namespace narrowcast::executor::cuda::generated {
namespace {

using codec::KernelKind;

constexpr KernelKind kinds[] = {KernelKind::move, KernelKind::relay, KernelKind::reduce};

// The kernels that the table refers to. Never unloaded.
std::vector<std::shared_ptr<LoadedKernels>>& kept() {
  static auto& all = *new std::vector<std::shared_ptr<LoadedKernels>>;
  return all;
}

ncast_status load(ncast_codec codec, const ncast_codec_type& type, int architecture) {
  std::string cubin;
  const std::string folder = CubinCache::default_folder();
  if (ncast_status status = compile_codec_kernels(codec, type.dtype, architecture, folder, &cubin)) return status;
  std::shared_ptr<LoadedKernels> loaded;
  cudaError_t error = LoadedKernels::load(cubin, &loaded);
  const void* functions[std::size(kinds)] = {};
  for (size_t i = 0; i < std::size(kinds) && error == cudaSuccess; ++i)
    error = loaded->find(codec_kernels[i], &functions[i]);
  if (error != cudaSuccess) return channel::cuda_failure("loading the kernels of a user's codec", error);
  kept().push_back(loaded);
  const uint32_t value_bytes = static_cast<uint32_t>(ncast_dtype_bytes(type.dtype));
  const uint32_t move_warps = select::move_warps(select::most_shared_bytes, type.block_bytes).all();
  const uint32_t reduce_warps = select::reduce_warps(select::most_shared_bytes, type.block_bytes, value_bytes);
  const uint32_t warps[] = {move_warps, move_warps, reduce_warps};
  for (size_t i = 0; i < std::size(kinds); ++i)
    codec::add_kernel(kinds[i], codec, type.dtype, {functions[i], warps[i], warps[i], 0, 0});
  return NCAST_OK;
}

}  // namespace

ncast_status load_codec_kernels() {
  static std::mutex mutex;
  static int loaded_architecture = 0;
  const std::lock_guard lock(mutex);
  int device = 0, major = 0, minor = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (error != cudaSuccess) return channel::cuda_failure("querying the GPU", error);
  const int architecture = major * 10 + minor;
  for (const codec::Row& row : codec::rows()) {
    if (codec::host_of(row).cuda_header == nullptr) continue;
    if (loaded_architecture != 0 && loaded_architecture != architecture)
      return fail(NCAST_UNSUPPORTED, "codecs of users need GPUs of one compute capability in a process, not %d and %d",
                  loaded_architecture, architecture);
    for (const ncast_codec_type& type : row.types())
      if (codec::find_kernel(KernelKind::reduce, row.id, type.dtype) == nullptr)
        if (ncast_status status = load(row.id, type, architecture)) return status;
    loaded_architecture = architecture;
  }
  return NCAST_OK;
}

}  // namespace narrowcast::executor::cuda::generated
