// payloads -> accumulator.
#pragma once

#include "codec/frame/cuda/decode_blocks.cuh"
#include "codec/frame/cuda/reduce_value.cuh"

namespace narrowcast::codec::cuda {

template <ncast_dtype Dtype>
__device__ void reduce_into(typename Number<Dtype>::Accumulator* accumulator, const void* values, uint32_t elems,
                            ncast_redop op, int lane) {
  using Value = typename Number<Dtype>::Value;
  using Accumulator = typename Number<Dtype>::Accumulator;
#pragma unroll 4
  for (uint32_t i = lane; i < elems; i += 32)
    accumulator[i] = reduced(op, accumulator[i], static_cast<Accumulator>(static_cast<const Value*>(values)[i]));
}

template <BlockCodec Codec>
struct ReduceSink {
  static constexpr ncast_dtype Dtype = Codec::dtype;
  typename Number<Dtype>::Accumulator* accumulator;
  ncast_redop op;

  __device__ void consume(uint64_t block, const char* from, int lane) const {
    __syncwarp();
    reduce_into<Dtype>(accumulator + block * block_elems<Codec>, from, block_elems<Codec>, op, lane);
    __syncwarp();
  }
  __device__ void consume_short(uint64_t block, uint32_t bytes, const char* from, int lane) const {
    reduce_into<Dtype>(accumulator + block * block_elems<Codec>, from, bytes / value_bytes<Codec>, op, lane);
  }
};

template <typename Codec>
__global__ void __launch_bounds__(max_warps<Codec> * 32, 1)
    decode_reduce_kernel(const __grid_constant__ DecodeArguments arguments, void* accumulator, ncast_redop op) {
  using Accumulator = typename Number<Codec::dtype>::Accumulator;
  decode_blocks<Codec>(arguments, ReduceSink<Codec>{static_cast<Accumulator*>(accumulator), op});
}

}  // namespace narrowcast::codec::cuda
