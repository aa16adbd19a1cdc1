#include "codec/frame/cuda/batch/launch.h"
#include "codec/frame/cuda/batch/lay_out.cuh"
#include "codec/frame/cuda/machine.h"

namespace narrowcast::codec::cuda {
namespace {

template <typename Arguments>
__global__ void __launch_bounds__(batch_chunk_step) lay_out_kernel(const __grid_constant__ Arguments arguments) {
  __shared__ LayOutMemory memory;
  clear_tiles(arguments.layout, arguments.workspace);
  lay_out_chunk(arguments, memory);
}

__global__ void __launch_bounds__(scatter_threads) scatter_kernel(const __grid_constant__ ScatterArguments arguments) {
  scatter_pages(arguments);
}

// `most_ctas`: CTAs that can have work.
template <typename Arguments>
cudaError_t launch_batch(KernelKind kind, Arguments arguments, uint32_t most_ctas, uint32_t other_warps,
                         const Launch& launch) {
  const Kernel* const kernel = find_kernel(kind, arguments.codec.codec, any_dtype);
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  Machine machine;
  if (const cudaError_t error = find_machine(launch, &machine)) return error;
  const uint32_t clearing = (arguments.layout.words() + batch_chunk_step - 1) / batch_chunk_step;
  const uint32_t ctas = std::max(arguments.layout.chunks, std::min(machine.ctas, clearing));
  lay_out_kernel<<<ctas, batch_chunk_step, 0, launch.stream>>>(arguments);
  if (const cudaError_t error = cudaGetLastError()) return error;
  const uint32_t most = launch.max_ctas == 0 ? kernel->max_warps_on_all_sms : kernel->max_warps;
  arguments.shared_bytes = static_cast<uint32_t>(machine.shared_bytes);
  return launch_kernel(kernel->function,
                       {std::min(machine.ctas, most_ctas), machine.warps(*kernel, most) + other_warps,
                        machine.shared_bytes, launch.stream},
                       arguments);
}

}  // namespace

cudaError_t encode_batch(const EncodeBatchArguments& arguments, const Launch& launch) {
  return launch_batch(KernelKind::encode_batch, arguments, arguments.layout.max_tiles, batch_service_warps, launch);
}

cudaError_t decode_batch(const DecodeBatchArguments& arguments, const Launch& launch) {
  return launch_batch(KernelKind::decode_batch, arguments, ~0u, 0, launch);
}

cudaError_t scatter_pages(const ScatterArguments& arguments, const Launch& launch) {
  constexpr uint64_t ctas_per_sm = 4;
  Machine machine;
  if (const cudaError_t error = find_machine(launch, &machine)) return error;
  const uint64_t useful = uint64_t{arguments.row_count} * arguments.page_count;
  const uint64_t most = machine.ctas * (launch.max_ctas == 0 ? ctas_per_sm : 1);
  scatter_kernel<<<static_cast<uint32_t>(std::min(useful, most)), scatter_threads, 0, launch.stream>>>(arguments);
  return cudaGetLastError();
}

}  // namespace narrowcast::codec::cuda
