// The kernels of the codec `window`.
#include "codec/frame/cuda/instantiate.cuh"
#include "codec/window/kernel.cuh"

namespace narrowcast {
namespace {

[[maybe_unused]] const bool added = codec::cuda::add_frame_kernels<codec::window::Codec>(NCAST_CODEC_WINDOW);

}  // namespace
}  // namespace narrowcast
