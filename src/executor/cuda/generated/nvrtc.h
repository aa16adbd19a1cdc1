// NVRTC, NVIDIA's compiler for CUDA C++ at run time. It is loaded when it is first needed: from the file that the
// environment variable NARROWCAST_NVRTC names, NVIDIA's packages (nvidia-cuda-nvrtc, which torch depends on, too) in
// the folders of Python's packages, that of this library first, a CUDA toolkit (CUDA_HOME, CUDA_PATH,
// /usr/local/cuda), or the process and the dynamic linker's path. It needs no host compiler and no headers.
#pragma once

#include <string>

#include "narrowcast/types.h"

namespace narrowcast::executor::cuda::generated {

// The file that would be loaded, and a text that changes when it does. Empty if only loading can tell. Does not load
// anything, because that takes longer than all other work of a program whose kernels are in the cache.
struct NvrtcFile {
  std::string path, identity;
};
NvrtcFile find_nvrtc();

// Loads NVRTC. Error: UNSUPPORTED, if there is none or it is too old; the message says where it was looked for.
ncast_status load_nvrtc();

// Compiles a source without includes. architecture: compute capability, such as 90. Errors: as load_nvrtc();
// UNSUPPORTED, if NVRTC does not know the architecture; INTERNAL with the compiler's message, if it rejects the source.
ncast_status compile_by_nvrtc(const std::string& source, int architecture, std::string* cubin);

}  // namespace narrowcast::executor::cuda::generated
