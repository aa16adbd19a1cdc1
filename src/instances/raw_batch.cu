// The batch kernels of the codec `raw`.
#include "codec/frame/cuda/batch/instantiate.cuh"
#include "codec/raw/kernel.cuh"

namespace narrowcast {
namespace {

[[maybe_unused]] const bool added = codec::cuda::add_batch_kernels<codec::raw::Codec>(NCAST_CODEC_RAW);

}  // namespace
}  // namespace narrowcast
