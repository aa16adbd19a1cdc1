// The batch kernels of the codec `window`, in a file of their own because they take long to compile.
#include "codec/frame/cuda/batch/instantiate.cuh"
#include "codec/window/kernel.cuh"

namespace narrowcast {
namespace {

[[maybe_unused]] const bool added = codec::cuda::add_batch_kernels<codec::window::Codec>(NCAST_CODEC_WINDOW);

}  // namespace
}  // namespace narrowcast
