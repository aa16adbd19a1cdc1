// The kernels of the codec `abs`.
#include "codec/absolute/kernel.cuh"
#include "codec/frame/cuda/instantiate.cuh"
#include "executor/cuda/blocks/instantiate.cuh"

namespace narrowcast {
namespace {

[[maybe_unused]] const bool added = codec::cuda::add_frame_kernels<codec::absolute::Codec>(NCAST_CODEC_ABS) &&
                                    executor::cuda::add_block_kernels<codec::absolute::SharedCodec>(NCAST_CODEC_ABS);

}  // namespace
}  // namespace narrowcast
