// The kernels of the codec `window`.
#include "codec/frame/cuda/instantiate.cuh"
#include "codec/window/kernel.cuh"
#include "executor/cuda/blocks/instantiate.cuh"

namespace narrowcast {
namespace {

[[maybe_unused]] const bool added = codec::cuda::add_frame_kernels<codec::window::Codec>(NCAST_CODEC_WINDOW) &&
                                    executor::cuda::add_block_kernels<codec::window::SharedCodec>(NCAST_CODEC_WINDOW);

}  // namespace
}  // namespace narrowcast
