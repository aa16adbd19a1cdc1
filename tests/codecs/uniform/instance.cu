// The kernels of the codec `uniform`.
#include "codec/frame/cuda/batch/instantiate.cuh"
#include "codec/frame/cuda/instantiate.cuh"
#include "executor/cuda/blocks/instantiate.cuh"
#include "uniform/kernel.cuh"

namespace narrowcast {
namespace {

constexpr ncast_codec id = 190;
[[maybe_unused]] const bool added = codec::cuda::add_frame_kernels<codec::uniform::Codec>(id) &&
                                    codec::cuda::add_batch_kernels<codec::uniform::Codec>(id) &&
                                    executor::cuda::add_block_kernels<codec::uniform::Codec>(id);

}  // namespace
}  // namespace narrowcast
