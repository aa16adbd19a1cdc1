// What surrounds values that are stored raw; the values themselves are copied by the copy engine.
#include "codec/frame/cuda/launch.h"

namespace narrowcast::codec::cuda {
namespace {

__global__ void write_raw_header_kernel(format::FrameHeader header, char* frame, uint64_t raw_bytes) {
  if (threadIdx.x == 0) *reinterpret_cast<format::FrameHeader*>(frame) = header;
  const uint64_t padding = format::aligned(raw_bytes) - raw_bytes;
  if (threadIdx.x < padding) frame[sizeof header + raw_bytes + threadIdx.x] = 0;
}

__global__ void write_raw_lengths_kernel(uint32_t* lengths, uint64_t blocks, uint32_t block_bytes,
                                         uint32_t last_bytes) {
  const uint64_t block = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (block < blocks) lengths[block] = block + 1 == blocks ? last_bytes : block_bytes;
}

}  // namespace

cudaError_t write_raw_header(const format::FrameHeader& header, char* frame, uint64_t raw_bytes, const Launch& launch) {
  write_raw_header_kernel<<<1, 32, 0, launch.stream>>>(header, frame, raw_bytes);
  return cudaGetLastError();
}

cudaError_t write_raw_lengths(uint32_t* lengths, uint64_t blocks, uint32_t block_bytes, uint32_t last_bytes,
                              const Launch& launch) {
  constexpr uint32_t threads = 256;
  write_raw_lengths_kernel<<<static_cast<uint32_t>((blocks + threads - 1) / threads), threads, 0, launch.stream>>>(
      lengths, blocks, block_bytes, last_bytes);
  return cudaGetLastError();
}

}  // namespace narrowcast::codec::cuda
