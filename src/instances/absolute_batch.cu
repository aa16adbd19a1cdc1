// The batch kernels of the codec `abs`.
#include "codec/absolute/kernel.cuh"
#include "codec/frame/cuda/batch/instantiate.cuh"

namespace narrowcast {
namespace {

[[maybe_unused]] const bool added = codec::cuda::add_batch_kernels<codec::absolute::Codec>(NCAST_CODEC_ABS);

}  // namespace
}  // namespace narrowcast
