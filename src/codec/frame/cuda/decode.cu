// payloads -> values.
#include "codec/frame/cuda/decode_blocks.cuh"

namespace narrowcast::codec::cuda {
namespace {

template <format::window::ValueType Type>
struct StoreSink {
  char* values;
  bool aligned;

  __device__ void take(uint64_t block, const char* from, int lane) const {
    char* to = values + block * Type.block_bytes();
    if (aligned) {
      device::bulk_store(to, from, Type.block_bytes(), lane);
    } else {
      __syncwarp();
      copy_block<Type>(to, from, lane);
      __syncwarp();
    }
  }
  __device__ void take_short(uint64_t block, uint32_t bytes, const char* from, int lane) const {
    copy_bytes(values + block * Type.block_bytes(), from, bytes, lane);
  }
};

template <ncast_dtype Dtype>
__global__ void __launch_bounds__(most_warps<format::window::value_type(Dtype)> * 32, 1)
    decode_kernel(DecodeArguments arguments, char* values) {
  constexpr format::window::ValueType Type = format::window::value_type(Dtype);
  decode_blocks<Type>(arguments, StoreSink<Type>{values, is_aligned(values)});
}

__global__ void check_raw_header_kernel(const format::FrameHeader* header, format::FrameHeader expected,
                                        uint64_t frame_bytes, ncast_device_status* status) {
  if (!header_matches(*header, expected, frame_bytes) || header->wire_bytes != expected.wire_bytes)
    report_corrupt(status);
}

}  // namespace

cudaError_t decode(const Payloads& payloads, const format::FrameHeader* header, const format::FrameHeader& expected,
                   const Values& values, ncast_device_status* status, const Launch& launch) {
  return dispatch(values.dtype, [&]<ncast_dtype Dtype>() {
    constexpr format::window::ValueType Type = format::window::value_type(Dtype);
    return launch_warps<Type, decoders_on_all_sms<Type>>(decode_kernel<Dtype>, expected.blocks, launch,
                                                         DecodeArguments{payloads, header, expected, status},
                                                         static_cast<char*>(values.data));
  });
}

cudaError_t check_raw_header(const format::FrameHeader* header, const format::FrameHeader& expected,
                             uint64_t frame_bytes, ncast_device_status* status, const Launch& launch) {
  check_raw_header_kernel<<<1, 1, 0, launch.stream>>>(header, expected, frame_bytes, status);
  return cudaGetLastError();
}

}  // namespace narrowcast::codec::cuda
