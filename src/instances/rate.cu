// The kernels of the codec `rate`.
#include "codec/frame/cuda/instantiate.cuh"
#include "codec/rate/kernel.cuh"
#include "executor/cuda/blocks/instantiate.cuh"

namespace narrowcast {
namespace {

[[maybe_unused]] const bool added = codec::cuda::add_frame_kernels<codec::rate::Codec>(NCAST_CODEC_RATE) &&
                                    executor::cuda::add_block_kernels<codec::rate::SharedCodec>(NCAST_CODEC_RATE);

}  // namespace
}  // namespace narrowcast
