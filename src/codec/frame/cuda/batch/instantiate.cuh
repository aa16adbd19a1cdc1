// The batch kernels of one codec.
#pragma once

#include "codec/frame/cuda/batch/decode.cuh"
#include "codec/frame/cuda/batch/encode.cuh"
#include "codec/kernel_table.h"

namespace narrowcast::codec::cuda {

inline constexpr uint32_t max_batch_decoders = 26, batch_decoders_on_all_sms = 20;

template <typename Family>
__global__ void __launch_bounds__((max_batch_coders + batch_service_warps) * 32, 1)
    encode_batch_kernel(const __grid_constant__ EncodeBatchArguments arguments) {
  extern __shared__ char shared_memory[];
  encode_batch<Family>(arguments, shared_memory);
}

template <typename Family>
__global__ void __launch_bounds__(max_batch_decoders * 32, 1)
    decode_batch_kernel(const __grid_constant__ DecodeBatchArguments arguments) {
  extern __shared__ char shared_memory[];
  decode_batch<Family>(arguments, shared_memory);
}

// Adds the kernels to the table. One kernel codes all value types.
template <template <ncast_dtype> typename Codec>
bool add_batch_kernels(ncast_codec id) {
  using Family = CodecFamily<Codec>;
  const auto add = [id](KernelKind kind, auto* function, uint32_t max_warps, uint32_t max_warps_on_all_sms,
                        size_t warp_bytes, size_t cta_bytes) {
    add_kernel(kind, id, any_dtype,
               {reinterpret_cast<const void*>(function), max_warps, max_warps_on_all_sms, warp_bytes, cta_bytes});
  };
  // The kernels divide their shared memory themselves, because its use depends on the types in the batch. Here are the
  // bytes for blocks of 4 KiB.
  add(KernelKind::encode_batch, encode_batch_kernel<Family>, max_batch_coders, max_batch_coders,
      BatchWarpMemory<Family, batch_encode_buffers>::bytes(4096), sizeof(EncodeBatchMemory));
  add(KernelKind::decode_batch, decode_batch_kernel<Family>, max_batch_decoders, batch_decoders_on_all_sms,
      BatchWarpMemory<Family, 2>::bytes(4096), sizeof(DecodeBatchMemory));
  return true;
}

}  // namespace narrowcast::codec::cuda
