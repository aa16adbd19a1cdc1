// The kernels of the codecs that quantise groups of values. All of them share one set for each value type.
#include "codec/frame/cuda/instantiate.cuh"
#include "codec/grouped/kernel.cuh"
#include "executor/cuda/blocks/instantiate.cuh"

namespace narrowcast {
namespace {

bool add_grouped_kernels() {
  for (ncast_codec id = NCAST_CODEC_INT8; id <= NCAST_CODEC_NVFP4; ++id) {
    codec::cuda::add_frame_kernels<codec::grouped::Codec>(id);
    executor::cuda::add_block_kernels<codec::grouped::SharedCodec>(id);
  }
  return true;
}
[[maybe_unused]] const bool added = add_grouped_kernels();

}  // namespace
}  // namespace narrowcast
