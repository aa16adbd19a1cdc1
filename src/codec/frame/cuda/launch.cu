#include "codec/frame/cuda/encode_frame.cuh"
#include "codec/frame/cuda/launch.h"
#include "codec/frame/cuda/machine.h"
#include "codec/frame/cuda/nonce.h"
#include "codec/frame/cuda/short_frame.cuh"

namespace narrowcast::codec::cuda {
namespace {

// Clears the workspace of encode_frame_kernel, which is launched early: that kernel may begin together with this one
// and waits for its end.
__global__ void clear_workspace_kernel(uint32_t* words, uint32_t count) {
  device::start_next_kernel();
  const uint32_t at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < count) words[at] = 0;
}

// Launches a kernel whose warps are independent of each other, and distributes the blocks over all SMs.
template <typename... Parameters>
cudaError_t launch_warps(KernelKind kind, ncast_codec codec, ncast_dtype dtype, uint64_t blocks, const Launch& launch,
                         const Parameters&... parameters) {
  const Kernel* const kernel = find_kernel(kind, codec, dtype);
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  Machine machine;
  if (const cudaError_t error = find_machine(launch, &machine)) return error;
  const auto ctas = static_cast<uint32_t>(std::min<uint64_t>(machine.ctas, blocks));
  const uint32_t most = launch.max_ctas == 0 ? kernel->max_warps_on_all_sms : kernel->max_warps;
  const auto wanted = static_cast<uint32_t>(std::min<uint64_t>((blocks + ctas - 1) / ctas, most));
  const uint32_t warps = machine.warps(*kernel, wanted);
  return launch_kernel(kernel->function, {ctas, warps, warps * kernel->warp_bytes + kernel->cta_bytes, launch.stream},
                       parameters...);
}

uint64_t blocks_of(uint64_t elems, uint64_t block_elems) { return (elems + block_elems - 1) / block_elems; }

// An upper bound for all devices and frames.
size_t short_frame_workspace_bytes(uint64_t blocks) {
  const auto tiles = static_cast<uint32_t>(std::min<uint64_t>(blocks, 2 * max_short_frame_ctas));
  return PublishedLayout{std::min(tiles, max_short_frame_ctas), tiles}.bytes();
}

// How a short frame is distributed over CTAs. `coders` is 0 if the frame is too long.
struct ShortFrameShape {
  uint32_t coders;
  PublishedLayout layout;
};
ShortFrameShape short_frame_shape(const Machine& machine, const Kernel& kernel, uint32_t blocks) {
  const uint32_t ctas = std::min(machine.ctas, max_short_frame_ctas);
  const uint32_t most = machine.warps(kernel, kernel.max_warps);
  const uint32_t of_cta = (blocks + ctas - 1) / ctas;
  const uint32_t turns = (of_cta + most - 1) / most;
  if (turns > 2) return {};
  const uint32_t coders = (of_cta + turns - 1) / turns;
  const uint32_t tiles = (blocks + coders - 1) / coders;
  return {coders, {std::min(tiles, ctas), tiles}};
}

cudaError_t launch_short_frame(const Kernel& kernel, const ShortFrameShape& shape,
                               const EncodeFrameArguments& arguments, cudaStream_t stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  cudaError_t error = cudaStreamIsCapturing(stream, &capture);
  // The kernel of a graph has the same nonce at every launch, so clear the words of the previous launch.
  if (error == cudaSuccess && capture != cudaStreamCaptureStatusNone)
    error = cudaMemsetAsync(arguments.workspace, 0, shape.layout.bytes(), stream);
  if (error != cudaSuccess) return error;
  return launch_kernel(
      kernel.function,
      {shape.layout.ctas, shape.coders + 1, shape.coders * kernel.warp_bytes + kernel.cta_bytes, stream}, arguments,
      new_nonce(), shape.layout);
}

cudaError_t launch_frame(const Machine& machine, const Kernel& kernel, const EncodeFrameArguments& arguments,
                         cudaStream_t stream) {
  // Use the minimum number of turns, and the minimum number of coders for these turns.
  const uint32_t blocks = arguments.header.blocks;
  const uint32_t most = machine.warps(kernel, kernel.max_warps);
  const uint32_t of_a_cta = std::max(1u, (blocks + machine.ctas - 1) / machine.ctas);
  const uint32_t turns = (of_a_cta + most - 1) / most;
  const uint32_t coders = std::max<uint32_t>((of_a_cta + turns - 1) / turns, min_coders);
  const uint32_t tiles = (blocks + coders - 1) / coders;
  const uint32_t words = static_cast<uint32_t>(sizeof(Workspace) / sizeof(uint32_t)) + tiles, threads = 1024;
  clear_workspace_kernel<<<(words + threads - 1) / threads, threads, 0, stream>>>(
      static_cast<uint32_t*>(arguments.workspace), words);
  if (const cudaError_t error = cudaGetLastError()) return error;
  return launch_kernel(kernel.function,
                       {std::min(tiles, machine.ctas), coders + service_warps,
                        coders * kernel.warp_bytes + kernel.cta_bytes, stream, true},
                       arguments);
}

}  // namespace

size_t encode_workspace_bytes(uint64_t blocks) {
  const uint64_t tiles = (blocks + min_coders - 1) / min_coders;
  return std::max<size_t>(format::aligned(sizeof(Workspace) + tiles * sizeof(uint32_t)),
                          short_frame_workspace_bytes(blocks));
}

cudaError_t encode_slots(const Values& values, ncast_codec codec, char* slots, uint32_t* lengths,
                         const Launch& launch) {
  const auto slot_bytes = static_cast<uint32_t>(ncast_slot_bytes(values.dtype, codec));
  const uint64_t blocks = blocks_of(values.elems, slot_bytes / ncast_dtype_bytes(values.dtype));
  return launch_warps(KernelKind::encode_slots, codec, values.dtype, blocks, launch,
                      EncodeSlotsArguments{static_cast<const char*>(values.data), values.elems, slots, slot_bytes,
                                           lengths, launch.max_ctas != 0, codec});
}

cudaError_t encode_frame(const Values& values, ncast_codec codec, const format::FrameHeader& header, char* frame,
                         void* workspace, const Launch& launch) {
  const Kernel* const kernel = find_kernel(KernelKind::encode_frame, codec, values.dtype);
  const Kernel* const short_kernel = find_kernel(KernelKind::encode_short_frame, codec, values.dtype);
  if (kernel == nullptr || short_kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  Machine machine;
  if (const cudaError_t error = find_machine(launch, &machine)) return error;
  const EncodeFrameArguments arguments{static_cast<const char*>(values.data), header, frame, workspace, codec};
  const ShortFrameShape shape = short_frame_shape(machine, *short_kernel, header.blocks);
  return shape.coders != 0 ? launch_short_frame(*short_kernel, shape, arguments, launch.stream)
                           : launch_frame(machine, *kernel, arguments, launch.stream);
}

cudaError_t encode_fixed_frame(const Values& values, ncast_codec codec, const format::FrameHeader& header, char* frame,
                               uint32_t payload_bytes, const Launch& launch) {
  const uint64_t value_bytes = ncast_dtype_bytes(values.dtype);
  const uint64_t block_elems = ncast_slot_bytes(values.dtype, codec) / value_bytes;
  const uint64_t stored = values.elems / block_elems * payload_bytes + values.elems % block_elems * value_bytes;
  const cudaError_t error =
      launch_warps(KernelKind::encode_slots, codec, values.dtype, blocks_of(values.elems, block_elems), launch,
                   EncodeSlotsArguments{static_cast<const char*>(values.data), values.elems, frame + sizeof header,
                                        payload_bytes, nullptr, launch.max_ctas != 0, codec});
  return error != cudaSuccess ? error : write_header(header, frame, stored, launch);
}

cudaError_t decode(const DecodeArguments& arguments, const Values& values, const Launch& launch) {
  const uint64_t block_elems = ncast_slot_bytes(values.dtype, arguments.codec) / ncast_dtype_bytes(values.dtype);
  return launch_warps(KernelKind::decode, arguments.codec, values.dtype, blocks_of(values.elems, block_elems), launch,
                      arguments, static_cast<char*>(values.data));
}

cudaError_t decode_reduce(const DecodeArguments& arguments, const Values& accumulator, ncast_redop op,
                          const Launch& launch) {
  const uint64_t block_elems =
      ncast_slot_bytes(accumulator.dtype, arguments.codec) / ncast_dtype_bytes(accumulator.dtype);
  return launch_warps(KernelKind::decode_reduce, arguments.codec, accumulator.dtype,
                      blocks_of(accumulator.elems, block_elems), launch, arguments, accumulator.data, op);
}

}  // namespace narrowcast::codec::cuda
