// Launches of the kernels that encode and place rows.
#include <algorithm>

#include "store/cuda/build/encode_kernels.h"
#include "store/cuda/build/encode_rows.cuh"
#include "store/cuda/build/place_rows.cuh"

namespace narrowcast::store::cuda {
namespace {

// The link, not the SMs, limits copies to host memory. Few CTAs find room next to those that encode.
constexpr uint32_t copy_out_ctas = 8;

__global__ void __launch_bounds__(encode_warps * 32) sum(const __grid_constant__ PlaceArguments arguments) {
  sum_tiles(arguments);
}
__global__ void __launch_bounds__(32) scan(const __grid_constant__ PlaceArguments arguments) { scan_tiles(arguments); }
__global__ void __launch_bounds__(encode_warps * 32) place(const __grid_constant__ PlaceArguments arguments) {
  place_rows(arguments);
}
__global__ void __launch_bounds__(encode_warps * 32) copy(const __grid_constant__ CopyOutArguments arguments) {
  copy_out(arguments);
}

}  // namespace

cudaError_t launch_encode(const EncodeKernel& kernel, const EncodeArguments& arguments, uint32_t ctas,
                          cudaStream_t stream) {
  const uint32_t useful = (arguments.count + kernel.rows - 1) / kernel.rows;
  kernel.function<<<std::min(useful, ctas), encode_warps * 32, kernel.shared_bytes, stream>>>(arguments);
  return cudaGetLastError();
}

cudaError_t launch_place(const PlaceArguments& arguments, uint32_t ctas, cudaStream_t stream) {
  const uint32_t tiles = (arguments.count + rows_per_tile - 1) / rows_per_tile;
  const auto useful = [&](uint32_t warps) { return std::min((warps + encode_warps - 1) / encode_warps, ctas); };
  sum<<<useful(tiles), encode_warps * 32, 0, stream>>>(arguments);
  scan<<<1, 32, 0, stream>>>(arguments);
  place<<<useful(tiles * arguments.warps_per_tile), encode_warps * 32, 0, stream>>>(arguments);
  return cudaGetLastError();
}

cudaError_t launch_copy_out(const CopyOutArguments& arguments, cudaStream_t stream) {
  copy<<<copy_out_ctas, encode_warps * 32, 0, stream>>>(arguments);
  return cudaGetLastError();
}

}  // namespace narrowcast::store::cuda
