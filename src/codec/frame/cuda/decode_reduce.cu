// payloads -> accumulator, and the same for values that were stored raw.
#include "codec/frame/cuda/decode_blocks.cuh"
#include "codec/frame/cuda/reduce_value.cuh"

namespace narrowcast::codec::cuda {
namespace {

template <ncast_dtype Dtype>
__device__ void reduce_into(typename Number<Dtype>::Accumulator* accumulator, const void* values, uint32_t elems,
                            ncast_redop op, int lane) {
  using Value = typename Number<Dtype>::Value;
  using Accumulator = typename Number<Dtype>::Accumulator;
#pragma unroll 4
  for (uint32_t i = lane; i < elems; i += 32)
    accumulator[i] = reduced(op, accumulator[i], static_cast<Accumulator>(static_cast<const Value*>(values)[i]));
}

template <ncast_dtype Dtype>
struct ReduceSink {
  static constexpr format::window::ValueType type = format::window::value_type(Dtype);
  typename Number<Dtype>::Accumulator* accumulator;
  ncast_redop op;

  __device__ void take(uint64_t block, const char* from, int lane) const {
    __syncwarp();
    reduce_into<Dtype>(accumulator + block * type.block_elems(), from, type.block_elems(), op, lane);
    __syncwarp();
  }
  __device__ void take_short(uint64_t block, uint32_t bytes, const char* from, int lane) const {
    reduce_into<Dtype>(accumulator + block * type.block_elems(), from, bytes / type.value_bytes, op, lane);
  }
};

template <ncast_dtype Dtype>
__global__ void __launch_bounds__(most_warps<format::window::value_type(Dtype)> * 32, 1)
    decode_reduce_kernel(DecodeArguments arguments, typename Number<Dtype>::Accumulator* accumulator, ncast_redop op) {
  decode_blocks<format::window::value_type(Dtype)>(arguments, ReduceSink<Dtype>{accumulator, op});
}

template <ncast_dtype Dtype>
__global__ void reduce_raw_kernel(const typename Number<Dtype>::Value* values,
                                  typename Number<Dtype>::Accumulator* accumulator, uint64_t elems, ncast_redop op) {
  using Accumulator = typename Number<Dtype>::Accumulator;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < elems; i += uint64_t{gridDim.x} * blockDim.x)
    accumulator[i] = reduced(op, accumulator[i], static_cast<Accumulator>(values[i]));
}

}  // namespace

cudaError_t decode_reduce(const Payloads& payloads, const format::FrameHeader* header,
                          const format::FrameHeader& expected, const Values& accumulator, ncast_redop op,
                          ncast_device_status* status, const Launch& launch) {
  return dispatch_number(accumulator.dtype, [&]<ncast_dtype Dtype>() {
    constexpr format::window::ValueType type = format::window::value_type(Dtype);
    if constexpr (type.value_bytes == 0) {
      return cudaErrorInvalidValue;
    } else {
      return launch_warps<type, decoders_on_all_sms<type>>(
          decode_reduce_kernel<Dtype>, expected.blocks, launch, DecodeArguments{payloads, header, expected, status},
          static_cast<typename Number<Dtype>::Accumulator*>(accumulator.data), op);
    }
  });
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
