// The GPU architectures of this build. The library without CUDA has none.
#include "narrowcast/cuda.h"

#ifndef NARROWCAST_ARCHITECTURES
#define NARROWCAST_ARCHITECTURES ""
#endif

extern "C" const char* ncast_cuda_architectures(void) { return NARROWCAST_ARCHITECTURES; }
