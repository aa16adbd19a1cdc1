// Tests copies by a warp for every alignment of both addresses.
#include <cstring>
#include <random>
#include <vector>

#include "device/copy.cuh"
#include "device/warp.cuh"
#include "support/device_array.h"

namespace narrowcast::tests {
namespace {

constexpr uint32_t misalignments = 16, room = 4352;  // room: bytes for a copy and the bytes around it

enum class Path { rare, batched, through_shared_memory };

// One warp for each pair of misalignments.
template <Path path>
__global__ void copy_kernel(char* to, const char* from, uint32_t bytes) {
  __shared__ alignas(16) char shared[room];
  const int lane = device::lane_id();
  const size_t at = size_t{blockIdx.x} * room;
  to += at + blockIdx.x % misalignments;
  from += at + blockIdx.x / misalignments;
  if constexpr (path == Path::rare) {
    device::copy_by_warp(to, from, bytes, lane);
  } else if constexpr (path == Path::batched) {
    device::copy_bytes<8>(to, from, bytes, lane);
  } else {
    device::copy_by_warp(shared, from, bytes, lane);
    __syncwarp();
    device::copy_by_warp(to, shared, bytes, lane);
  }
}

template <Path path>
void check(uint32_t bytes) {
  CAPTURE(bytes);
  std::mt19937_64 random(bytes);
  std::vector<char> from(misalignments * misalignments * room), to(from.size());
  for (char& byte : from) byte = static_cast<char>(random());
  for (char& byte : to) byte = static_cast<char>(random());
  const DeviceArray<char> device_from(from), device_to(to);
  copy_kernel<path><<<misalignments * misalignments, 32>>>(device_to.data(), device_from.data(), bytes);
  REQUIRE_CUDA(cudaDeviceSynchronize());
  for (uint32_t pair = 0; pair < misalignments * misalignments; ++pair)
    std::memcpy(&to[pair * room + pair % misalignments], &from[pair * room + pair / misalignments], bytes);
  REQUIRE(device_to.read() == to);
}

}  // namespace

TEST_CASE("a warp copies bytes of any alignment and writes no others") {
  for (const uint32_t bytes : {0u,  1u,  2u,  3u,  4u,   5u,   7u,   8u,   11u,   15u,   16u,   17u,  31u,
                               32u, 33u, 47u, 48u, 127u, 128u, 500u, 512u, 2054u, 4095u, 4096u, 4099u}) {
    check<Path::rare>(bytes);
    check<Path::batched>(bytes);
    check<Path::through_shared_memory>(bytes);
  }
}

}  // namespace narrowcast::tests
