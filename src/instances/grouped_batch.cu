// The batch kernels of the codecs that quantise groups of values.
#include "codec/frame/cuda/batch/instantiate.cuh"
#include "codec/grouped/kernel.cuh"

namespace narrowcast {
namespace {

bool add_grouped_batch_kernels() {
  for (ncast_codec id = NCAST_CODEC_INT8; id <= NCAST_CODEC_NVFP4; ++id)
    codec::cuda::add_batch_kernels<codec::grouped::Codec>(id);
  return true;
}
[[maybe_unused]] const bool added = add_grouped_batch_kernels();

}  // namespace
}  // namespace narrowcast
