#include <algorithm>

#include "codec/codec.h"
#include "codec/frame/header.h"
#include "codec/raw/kernel.cuh"
#include "codec/row.h"
#include "codec/window/kernel.cuh"
#include "device/early_launch.cuh"
#include "status/error.h"
#include "store/cuda/cuda_errors.h"
#include "store/cuda/frame_read.cuh"
#include "store/cuda/frame_read.h"
#include "store/cuda/launch.h"
#include "store/cuda/slice_chunk.h"

namespace narrowcast::store::cuda {
namespace {

// Lines that are fetched pass through the L1 cache, which has what CTAs leave of the memory that both share.
constexpr size_t l1_bytes = 32 << 10;

template <typename Codec>
__global__ void __launch_bounds__(max_read_warps<Codec> * 32, 1)
    read_frames_kernel(const __grid_constant__ FrameReadArguments arguments) {
  extern __shared__ char shared_memory[];
  read_frames<Codec>(arguments, shared_memory);
}

struct Kernel {
  const void* function;  // NULL if there is none
  uint32_t max_warps;
  uint32_t warp_bytes;  // of shared memory, without payloads
};
template <typename Codec>
Kernel kernel() {
  return {reinterpret_cast<const void*>(&read_frames_kernel<Codec>), max_read_warps<Codec>,
          sizeof(FrameReadMemory<Codec>)};
}
// codec: after the choice for the value type. One kernel moves raw values of all types.
Kernel kernel_of(ncast_dtype dtype, ncast_codec codec) {
  using codec::window::Codec;
  if (codec::id_of(codec) == NCAST_CODEC_RAW) return kernel<codec::raw::Codec<NCAST_UINT8>>();
  if (codec::id_of(codec) != NCAST_CODEC_WINDOW) return {};
  switch (dtype) {
    case NCAST_BFLOAT16: return kernel<Codec<NCAST_BFLOAT16>>();
    case NCAST_FLOAT16: return kernel<Codec<NCAST_FLOAT16>>();
    case NCAST_FLOAT32: return kernel<Codec<NCAST_FLOAT32>>();
    case NCAST_FLOAT64: return kernel<Codec<NCAST_FLOAT64>>();
    case NCAST_FLOAT8_E4M3: return kernel<Codec<NCAST_FLOAT8_E4M3>>();
    case NCAST_FLOAT8_E5M2: return kernel<Codec<NCAST_FLOAT8_E5M2>>();
    default: return {};
  }
}

// How many warps, at most `most`, read so many blocks in turns. The fewest turns, or one or two more if the last one
// then has blocks for more of the warps: the link is not busy while some of them read the last blocks.
uint32_t warps_for(uint32_t blocks, uint32_t most) {
  const uint32_t fewest_turns = (blocks + most - 1) / most;
  const uint32_t most_turns = fewest_turns <= 16 ? fewest_turns * 9 / 8 : fewest_turns;
  uint32_t warps = 0, least_idle = UINT32_MAX;
  for (uint32_t turns = fewest_turns; turns <= most_turns; ++turns) {
    const uint32_t some = (blocks + turns - 1) / turns, idle = some * turns - blocks;
    if (idle < least_idle) warps = some, least_idle = idle;
  }
  return warps;
}

// wire_bytes: as in TensorFrames.
format::FrameHeader header_of(ncast_dtype dtype, ncast_codec codec, uint64_t elems) {
  format::FrameHeader header = codec::make_header(dtype, codec, elems, 0);
  header.wire_bytes = header.codec == NCAST_CODEC_RAW ? codec::frame_bytes_of(dtype, codec, elems).most
                                                      : format::frame_layout(elems, header.block_elems).payload_offset;
  return header;
}

}  // namespace

ncast_status FrameReadKernel::prepare(const char* function, ncast_dtype dtype, ncast_codec codec, uint64_t frame_elems,
                                      uint64_t elems) {
  if (const ncast_status status = codec::check_frame_arguments(function, dtype, codec, frame_elems); status != NCAST_OK)
    return status;
  const ncast_codec used = codec::effective_codec(dtype, codec);
  const Kernel kernel = kernel_of(dtype, used);
  if (kernel.function == nullptr)
    return fail(NCAST_UNSUPPORTED, "%s: there is no kernel for this table's codec", function);
  RETURN_IF_CUDA_FAILED(function, find_gather_machine(&machine_));
  RETURN_IF_CUDA_FAILED(function, cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                       static_cast<int>(machine_.shared_bytes)));
  function_ = kernel.function;
  warp_bytes_ = kernel.warp_bytes;
  block_bytes_ = codec::block_type(dtype, used).block_bytes;
  shared_bytes_ = static_cast<uint32_t>(machine_.shared_bytes - l1_bytes);
  most_warps_ = std::min(kernel.max_warps, shared_bytes_ / (warp_bytes_ + block_bytes_ * 3 / 2));
  const uint64_t value_bytes = ncast_dtype_bytes(dtype);
  tensor_.count = (elems + frame_elems - 1) / frame_elems;
  tensor_.frame_bytes = frame_elems * value_bytes;
  tensor_.tensor_bytes = elems * value_bytes;
  tensor_.frame_blocks = static_cast<uint32_t>((tensor_.frame_bytes + block_bytes_ - 1) / block_bytes_);
  tensor_.headers[0] = header_of(dtype, codec, frame_elems);
  tensor_.headers[1] = header_of(dtype, codec, elems == 0 ? 0 : elems - (tensor_.count - 1) * frame_elems);
  return NCAST_OK;
}

uint64_t FrameReadKernel::bytes_before(const uint8_t* frame, uint64_t frame_bytes, bool is_last, uint64_t block) const {
  const format::FrameHeader& header = tensor_.headers[is_last ? 1 : 0];
  if (header.codec == NCAST_CODEC_RAW)
    return block == 0 ? 0 : std::min(frame_bytes, sizeof header + block * block_bytes_);
  return bytes_before_block(frame, frame_bytes, header.wire_bytes, block);
}

cudaError_t FrameReadKernel::launch(const FrameRead& read, uint32_t sms, cudaStream_t stream, bool early) const {
  if (read.begin == read.end) return cudaSuccess;
  const auto block_at = [&](uint64_t byte) {
    return byte / tensor_.frame_bytes * tensor_.frame_blocks + byte % tensor_.frame_bytes / block_bytes_;
  };
  FrameReadArguments arguments = {};
  arguments.tensor = tensor_;
  arguments.read = read;
  arguments.first_block = block_at(read.begin);
  arguments.block_count = static_cast<uint32_t>(block_at(read.end - 1) - arguments.first_block + 1);
  const uint32_t ctas = std::min({sms, machine_.sms, arguments.block_count});
  const uint32_t warps = warps_for((arguments.block_count + ctas - 1) / ctas, most_warps_);
  const uint32_t most_room = shared_bytes_ / warps - warp_bytes_;
  arguments.payload_room = std::min(most_room, 2 * (block_bytes_ + line_bytes)) / line_bytes * line_bytes;
  return device::launch(function_, ctas, warps, size_t{warps} * (warp_bytes_ + arguments.payload_room), stream, early,
                        arguments);
}

}  // namespace narrowcast::store::cuda
