// payloads -> values.
#pragma once

#include "codec/frame/cuda/decode_blocks.cuh"

namespace narrowcast::codec::cuda {

template <BlockCodec Codec>
struct StoreSink {
  char* values;
  bool aligned;

  __device__ void consume(uint64_t block, const char* from, int lane) const {
    char* to = values + block * Codec::values_bytes;
    if (aligned) {
      device::bulk_store(to, from, Codec::values_bytes, lane);
    } else {
      __syncwarp();
      copy_block<Codec>(to, from, lane);
      __syncwarp();
    }
  }
  __device__ void consume_short(uint64_t block, uint32_t bytes, const char* from, int lane) const {
    copy_bytes(values + block * Codec::values_bytes, from, bytes, lane);
  }
};

template <typename Codec>
__global__ void __launch_bounds__(max_warps<Codec> * 32, 1)
    decode_kernel(const __grid_constant__ DecodeArguments arguments, char* values) {
  decode_blocks<Codec>(arguments, StoreSink<Codec>{values, is_aligned(values)});
}

}  // namespace narrowcast::codec::cuda
