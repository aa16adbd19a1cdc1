// Kernels for values that are stored raw: headers, slot lengths, header checks and reductions. The values themselves
// are copied by cudaMemcpyAsync.
#include "codec/frame/cuda/header_check.cuh"
#include "codec/frame/cuda/launch.h"
#include "codec/frame/cuda/machine.h"
#include "codec/frame/cuda/reduce_value.cuh"

namespace narrowcast::codec::cuda {
namespace {

__global__ void write_header_kernel(format::FrameHeader header, char* frame, uint64_t stored_bytes) {
  if (threadIdx.x == 0) *reinterpret_cast<format::FrameHeader*>(frame) = header;
  const uint64_t padding = format::aligned(stored_bytes) - stored_bytes;
  if (threadIdx.x < padding) frame[sizeof header + stored_bytes + threadIdx.x] = 0;
}

__global__ void write_raw_lengths_kernel(uint32_t* lengths, uint64_t blocks, uint32_t block_bytes,
                                         uint32_t last_bytes) {
  const uint64_t block = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (block < blocks) lengths[block] = block + 1 == blocks ? last_bytes : block_bytes;
}

__global__ void check_raw_header_kernel(const format::FrameHeader* header, format::FrameHeader expected,
                                        uint64_t frame_bytes, ncast_device_status* status) {
  if (!header_matches(*header, expected, frame_bytes) || header->wire_bytes != expected.wire_bytes)
    report_corrupt(status);
}

template <ncast_dtype Dtype>
__global__ void reduce_raw_kernel(const typename Number<Dtype>::Value* values,
                                  typename Number<Dtype>::Accumulator* accumulator, uint64_t elems, ncast_redop op) {
  using Accumulator = typename Number<Dtype>::Accumulator;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < elems; i += uint64_t{gridDim.x} * blockDim.x)
    accumulator[i] = reduced(op, accumulator[i], static_cast<Accumulator>(values[i]));
}

}  // namespace

cudaError_t write_header(const format::FrameHeader& header, char* frame, uint64_t stored_bytes, const Launch& launch) {
  write_header_kernel<<<1, 32, 0, launch.stream>>>(header, frame, stored_bytes);
  return cudaGetLastError();
}

cudaError_t write_raw_lengths(uint32_t* lengths, uint64_t blocks, uint32_t block_bytes, uint32_t last_bytes,
                              const Launch& launch) {
  constexpr uint32_t threads = 256;
  write_raw_lengths_kernel<<<static_cast<uint32_t>((blocks + threads - 1) / threads), threads, 0, launch.stream>>>(
      lengths, blocks, block_bytes, last_bytes);
  return cudaGetLastError();
}

cudaError_t check_raw_header(const format::FrameHeader* header, const format::FrameHeader& expected,
                             uint64_t frame_bytes, ncast_device_status* status, const Launch& launch) {
  check_raw_header_kernel<<<1, 1, 0, launch.stream>>>(header, expected, frame_bytes, status);
  return cudaGetLastError();
}

cudaError_t reduce_raw(const void* values, const Values& accumulator, ncast_redop op, const Launch& launch) {
  return dispatch_number(accumulator.dtype, [&]<ncast_dtype Dtype>() {
    constexpr uint32_t threads = 512, ctas_per_sm = 4;
    Machine machine;
    const cudaError_t error = find_machine(launch, &machine);
    if (error != cudaSuccess) return error;
    const uint64_t wanted = (accumulator.elems + threads - 1) / threads;
    const auto ctas = static_cast<uint32_t>(std::min<uint64_t>(wanted, uint64_t{machine.ctas} * ctas_per_sm));
    reduce_raw_kernel<Dtype><<<ctas, threads, 0, launch.stream>>>(
        static_cast<const typename Number<Dtype>::Value*>(values),
        static_cast<typename Number<Dtype>::Accumulator*>(accumulator.data), accumulator.elems, op);
    return cudaGetLastError();
  });
}

}  // namespace narrowcast::codec::cuda
