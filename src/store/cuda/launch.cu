#include <algorithm>

#include "device/early_launch.cuh"
#include "store/cuda/kernel_choice.h"
#include "store/cuda/launch.h"

namespace narrowcast::store::cuda {

cudaError_t find_gather_machine(GatherMachine* machine) {
  int device = 0, sms = 0, shared_bytes = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  *machine = {static_cast<uint32_t>(sms), static_cast<size_t>(shared_bytes)};
  return error;
}

cudaError_t prepare_gather(const GatherKernel& kernel, const GatherMachine& machine) {
  const auto bytes = static_cast<int>(machine.shared_bytes);
  cudaError_t error = cudaSuccess;
  for (const GatherKernel::Functions& functions : {kernel.uncached, kernel.cached})
    for (const void* const function :
         {functions.for_warps, functions.for_teams, functions.for_lanes, functions.for_twos, functions.for_eights})
      if (error == cudaSuccess && function != nullptr)
        error = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  return error;
}

cudaError_t launch_gather(const GatherKernel& kernel, const GatherArguments& arguments, uint32_t sms,
                          cudaStream_t stream) {
  const GatherShape& shape = arguments.shape;
  const uint64_t rows_per_cta = uint64_t{shape.rows} * (shape.warps / shape.team_warps);
  const uint64_t useful = std::max<uint64_t>((arguments.selection.count + rows_per_cta - 1) / rows_per_cta, 1);
  const auto ctas = static_cast<uint32_t>(std::min<uint64_t>(useful, sms));
  const auto& functions = arguments.selection.cached.slots != nullptr ? kernel.cached : kernel.uncached;
  const RowFormat& format = arguments.format;
  const bool has_stages = format.has_zeros != 0 || format.has_trim != 0;
  const void* const function = function_for(functions, shape, has_stages);
  return device::launch(function, ctas, shape.warps, cta_bytes(shape), stream, false, arguments);
}

}  // namespace narrowcast::store::cuda
