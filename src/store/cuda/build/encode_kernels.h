// The kernels that encode and place rows. CTAs have encode_warps warps.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "store/cuda/build/encode_arguments.h"
#include "store/rows/model.h"

namespace narrowcast::store::cuda {

struct EncodeKernel {
  void (*function)(EncodeArguments);  // NULL for the coder raw, which has none
  size_t shared_bytes;                // of a CTA
  uint32_t rows;                      // that a CTA encodes at a time
};
// function: of the coder Row (encode_rows.cuh).
template <typename Row>
EncodeKernel kernel_of(void (*function)(EncodeArguments)) {
  constexpr uint32_t rows = encode_warps * 32 / Row::Lanes::count;
  return {function, rows * sizeof(typename Row::Shared), rows};
}
EncodeKernel plain_encoder(uint32_t elem_bytes);
EncodeKernel invariant_encoder(uint32_t chunk_bytes, bool has_stages);
EncodeKernel window_encoder(const Model& model);

cudaError_t launch_encode(const EncodeKernel& kernel, const EncodeArguments& arguments, uint32_t ctas,
                          cudaStream_t stream);
// After launch_encode(). Sums, prefix sum and copies.
cudaError_t launch_place(const PlaceArguments& arguments, uint32_t ctas, cudaStream_t stream);
cudaError_t launch_copy_out(const CopyOutArguments& arguments, cudaStream_t stream);

}  // namespace narrowcast::store::cuda
