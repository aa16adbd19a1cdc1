// The batch kernels of the codec `rate`.
#include "codec/frame/cuda/batch/instantiate.cuh"
#include "codec/rate/kernel.cuh"

namespace narrowcast {
namespace {

[[maybe_unused]] const bool added = codec::cuda::add_batch_kernels<codec::rate::Codec>(NCAST_CODEC_RATE);

}  // namespace
}  // namespace narrowcast
