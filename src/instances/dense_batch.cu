// The batch kernels of the codec `dense`, in a file of their own because they take long to compile.
#include "codec/dense/kernel.cuh"
#include "codec/frame/cuda/batch/instantiate.cuh"

namespace narrowcast {
namespace {

[[maybe_unused]] const bool added = codec::cuda::add_batch_kernels<codec::dense::Codec>(NCAST_CODEC_DENSE);

}  // namespace
}  // namespace narrowcast
