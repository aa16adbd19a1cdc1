// The kernels of the codec `raw`. Raw frames are plain copies and need no kernel. One kernel moves the bytes of all
// value types; reductions need one kernel for each type.
#include "codec/raw/kernel.cuh"
#include "executor/cuda/blocks/instantiate.cuh"

namespace narrowcast {
namespace {

using Bytes = codec::raw::Codec<NCAST_UINT8>;

bool add_raw_kernels(ncast_codec id) {
  codec::for_each_dtype<codec::raw::Codec>([id]<typename Codec>() {
    executor::cuda::add_move_kernels<Bytes>(id, Codec::dtype);
    executor::cuda::add_reduce_kernel<Codec>(id);
  });
  return true;
}
[[maybe_unused]] const bool added = add_raw_kernels(NCAST_CODEC_RAW);

}  // namespace
}  // namespace narrowcast
