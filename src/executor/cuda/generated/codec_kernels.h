// The kernels of operations with a user's codec, which are compiled when the process creates its first communicator.
#pragma once

#include <string>

#include "narrowcast/types.h"

namespace narrowcast::executor::cuda::generated {

// The names of the kernels, by codec::KernelKind: move, relay, reduce.
inline constexpr const char* codec_kernels[] = {"codec_move", "codec_relay", "codec_reduce"};

// The source of the kernels of a user's codec that has a CUDA header, for a type that it encodes.
std::string source_of_codec_kernels(ncast_codec codec, ncast_dtype dtype);

// Compiles them for a compute capability, such as 90, or takes the cubin from the cache in `folder`. Errors:
// INVALID_ARGUMENT, with the compiler's messages, if the header does not compile; those of compile_by_nvrtc().
ncast_status compile_codec_kernels(ncast_codec codec, ncast_dtype dtype, int architecture, const std::string& folder,
                                   std::string* cubin);

// Adds the kernels of all users' codecs that have CUDA headers to the kernel table, for the architecture of the current
// GPU. All GPUs of the process must have the same one. Any thread. Errors: also CUDA_ERROR, UNSUPPORTED.
ncast_status load_codec_kernels();

}  // namespace narrowcast::executor::cuda::generated
