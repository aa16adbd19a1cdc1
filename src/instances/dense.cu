// The kernels of the codec `dense`.
#include "codec/dense/kernel.cuh"
#include "codec/frame/cuda/instantiate.cuh"
#include "executor/cuda/blocks/instantiate.cuh"

namespace narrowcast {
namespace {

[[maybe_unused]] const bool added = codec::cuda::add_frame_kernels<codec::dense::Codec>(NCAST_CODEC_DENSE) &&
                                    executor::cuda::add_block_kernels<codec::dense::SharedCodec>(NCAST_CODEC_DENSE);

}  // namespace
}  // namespace narrowcast
