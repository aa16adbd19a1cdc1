// The host side of the batch kernels. api.cu checks arguments.
#pragma once

#include "codec/frame/cuda/batch/arguments.h"
#include "codec/frame/cuda/batch/scatter.cuh"
#include "codec/frame/cuda/launch.h"

namespace narrowcast::codec::cuda {

// Both launch two kernels: one that lays out the frames, and one that codes all blocks. `shared_bytes` of the arguments
// is ignored. They return cudaErrorInvalidDeviceFunction if the table has no kernel.
cudaError_t encode_batch(const EncodeBatchArguments& arguments, const Launch& launch);
cudaError_t decode_batch(const DecodeBatchArguments& arguments, const Launch& launch);

cudaError_t scatter_pages(const ScatterArguments& arguments, const Launch& launch);

}  // namespace narrowcast::codec::cuda
