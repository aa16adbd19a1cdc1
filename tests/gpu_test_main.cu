// main() of the tests that need a GPU. Without one they are skipped, and say why.
#define DOCTEST_CONFIG_IMPLEMENT
#include <cuda_runtime_api.h>

#include <cstdio>

#include "doctest/doctest.h"

namespace {
constexpr int skipped = 77;  // SKIP_RETURN_CODE of these tests
}  // namespace

int main(int argc, char** argv) {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    std::printf("skipped: no GPU that CUDA can use (%s)\n", cudaGetErrorString(error));
    return skipped;
  }
  return doctest::Context(argc, argv).run();
}
