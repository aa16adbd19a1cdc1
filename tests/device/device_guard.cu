// A guard leaves a thread as it was. GPU 0 must not become current in threads that used no GPU.
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <thread>

#include "device/device_guard.h"
#include "doctest/doctest.h"

namespace narrowcast::device::test {
namespace {

CUcontext current_context() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  CHECK(cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", &found, 12000, cudaEnableDefault, &result) == cudaSuccess);
  CUcontext context = nullptr;
  CHECK(reinterpret_cast<PFN_cuCtxGetCurrent_v4000>(found)(&context) == CUDA_SUCCESS);
  return context;
}

TEST_CASE("a thread that had no current GPU has none after a guard") {
  int devices = 0;
  REQUIRE(cudaGetDeviceCount(&devices) == cudaSuccess);
  for (int device = 0; device < devices; ++device) {
    std::thread([device] {
      {
        const DeviceGuard device_guard(device);
        CHECK(device_guard.error() == cudaSuccess);
        int current = -1;
        CHECK(cudaGetDevice(&current) == cudaSuccess);
        CHECK(current == device);
        CHECK(cudaFree(nullptr) == cudaSuccess);
        CHECK(current_context() != nullptr);
      }
      CHECK(current_context() == nullptr);
    }).join();
  }
}

TEST_CASE("a guard restores the current GPU of the thread") {
  int devices = 0;
  REQUIRE(cudaGetDeviceCount(&devices) == cudaSuccess);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  {
    const DeviceGuard device_guard(devices - 1);
    const DeviceGuard nested(0);
    int current = -1;
    CHECK(cudaGetDevice(&current) == cudaSuccess);
    CHECK(current == 0);
  }
  int current = -1;
  CHECK(cudaGetDevice(&current) == cudaSuccess);
  CHECK(current == 0);
  CHECK(DeviceGuard(devices).error() == cudaErrorInvalidDevice);
  cudaGetLastError();
}

}  // namespace
}  // namespace narrowcast::device::test
