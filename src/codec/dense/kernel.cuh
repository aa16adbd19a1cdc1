// The codec `dense` on the GPU, in the form that kernels expect of a codec.
#pragma once

#include "../../device/coder_codec.cuh"
#include "block.cuh"

namespace narrowcast::codec::dense {

// The BlockCodecs (device/block_codec.cuh) for each value type that `dense` supports. Their parameter is the dtype,
// because nvcc cannot mangle kernel names that contain a template argument of class type.
template <ncast_dtype Dtype>
  requires(value_type(Dtype).value_bytes != 0)
struct Codec : device::InlineCodec<Dtype, Block<value_type(Dtype)>> {};

template <ncast_dtype Dtype>
  requires(value_type(Dtype).value_bytes != 0)
struct SharedCodec : device::OutlinedCodec<Dtype, Block<value_type(Dtype)>> {};

}  // namespace narrowcast::codec::dense
