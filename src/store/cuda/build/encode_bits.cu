// The kernels that encode rows with the coders `plain` and `invariant`.
#include "store/cuda/build/encode_bits.cuh"
#include "store/cuda/build/encode_kernels.h"

namespace narrowcast::store::cuda {
namespace {

template <typename Row>
__global__ void __launch_bounds__(encode_warps * 32) encode(const __grid_constant__ EncodeArguments arguments) {
  extern __shared__ __align__(16) char shared_memory[];
  encode_rows<Row>(arguments, shared_memory);
}

template <typename Row>
EncodeKernel kernel() {
  return kernel_of<Row>(encode<Row>);
}

template <bool has_stages>
EncodeKernel invariant_encoder_of(uint32_t chunk_bytes) {
  switch (chunk_bytes) {
    case 1: return kernel<EncodeInvariant<uint8_t, has_stages>>();
    case 2: return kernel<EncodeInvariant<uint16_t, has_stages>>();
    case 4: return kernel<EncodeInvariant<uint32_t, has_stages>>();
    default: return kernel<EncodeInvariant<uint64_t, has_stages>>();
  }
}

}  // namespace

EncodeKernel plain_encoder(uint32_t elem_bytes) {
  switch (elem_bytes) {
    case 1: return kernel<EncodePlain<uint8_t>>();
    case 2: return kernel<EncodePlain<uint16_t>>();
    case 4: return kernel<EncodePlain<uint32_t>>();
    default: return kernel<EncodePlain<uint64_t>>();
  }
}

EncodeKernel invariant_encoder(uint32_t chunk_bytes, bool has_stages) {
  return has_stages ? invariant_encoder_of<true>(chunk_bytes) : invariant_encoder_of<false>(chunk_bytes);
}

}  // namespace narrowcast::store::cuda
