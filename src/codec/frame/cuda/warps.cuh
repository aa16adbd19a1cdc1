// How the codec kernels lay out a CTA: independent warps, each with room for one block's values and its payload.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "codec/frame/cuda/launch.h"
#include "codec/window/kernel.cuh"
#include "device/early_launch.cuh"
#include "device/ptx/bulk_copy.cuh"

namespace narrowcast::codec::cuda {

// Buffers of a block's size: values and payloads change places, so that a raw block leaves from where it came to. Bulk
// copies of lesser alignment are slower.
template <format::window::ValueType Type, int Buffers>
struct alignas(128) WarpMemory {
  using Block = window::Block<Type>;
  static_assert(Block::payload_capacity == Block::values_bytes);
  char buffers[Buffers][Block::values_bytes];
  typename Block::Scratch scratch;
  uint64_t barrier;
};

// Warps of a CTA; there is one CTA an SM. On a part of the SMs the more warps the better, as many as shared memory holds:
// each hides the others' latencies. On all of them memory is the limit, and more than enough warps to fill it disturb it:
// fewer encoders are enough, which read more.
template <format::window::ValueType Type>
inline constexpr int most_warps = Type.block_bytes() > 4096 ? 13 : 26;
template <format::window::ValueType Type>
inline constexpr int encoders_on_all_sms = Type.block_bytes() > 4096 ? 12 : 16;
template <format::window::ValueType Type>
inline constexpr int decoders_on_all_sms = Type.block_bytes() > 4096 ? 12 : 20;

// Copies within the warp's reach where a bulk copy cannot go: any alignment, any count of bytes.
__device__ inline void copy_bytes(char* to, const char* from, uint32_t bytes, int lane) {
  for (uint32_t at = lane; at < bytes; at += 32) to[at] = from[at];
}
// The same for a whole block, by values: both pointers are aligned to the value type.
template <format::window::ValueType Type>
__device__ void copy_block(char* to, const char* from, int lane) {
  using Word = std::conditional_t<Type.value_bytes == 1, uint8_t,
                                  std::conditional_t<Type.value_bytes == 2, uint16_t,
                                                     std::conditional_t<Type.value_bytes == 4, uint32_t, uint64_t>>>;
#pragma unroll 8
  for (int i = lane; i < Type.block_elems(); i += 32)
    reinterpret_cast<Word*>(to)[i] = reinterpret_cast<const Word*>(from)[i];
}

__device__ inline bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % format::alignment == 0;
}

// Brings whole blocks of values to shared memory, one at a time; the whole warp calls.
template <format::window::ValueType Type>
class BlockLoader {
 public:
  __device__ BlockLoader(const char* values, uint64_t* barrier, int lane)
      : values_(values), aligned_(is_aligned(values)), lane_(lane), barrier_(barrier, lane) {}

  // Starts to load `block`, and asks for `following` as well if that is below `end`.
  __device__ void start(char* to, uint32_t block, uint32_t following = 0, uint32_t end = 0) {
    const char* from = values_ + uint64_t{block} * Type.block_bytes();
    if (aligned_) {
      barrier_.load(to, from, Type.block_bytes(), lane_);
      if (lane_ == 0 && following < end)
        device::prefetch_to_l2(values_ + uint64_t{following} * Type.block_bytes(), Type.block_bytes());
    } else {
      __syncwarp();
      copy_block<Type>(to, from, lane_);
    }
  }
  __device__ void wait() {
    if (aligned_) {
      barrier_.wait();
    } else {
      __syncwarp();
    }
  }

 private:
  const char* values_;
  bool aligned_;
  int lane_;
  device::LoadBarrier barrier_;
};

// The last block, when it is short: stored raw, and zero up to the alignment. Returns the bytes stored.
template <format::window::ValueType Type>
__device__ uint32_t store_short_block(char* to, const char* values, uint64_t elems, int lane) {
  const uint64_t first = elems / Type.block_elems() * Type.block_elems();
  const uint32_t bytes = static_cast<uint32_t>(elems - first) * Type.value_bytes;
  const uint32_t stored = static_cast<uint32_t>(format::aligned(bytes));
  copy_bytes(to, values + first * Type.value_bytes, bytes, lane);
  if (bytes + lane < stored) to[bytes + lane] = 0;
  return stored;
}

// What the current device offers a launch.
struct Machine {
  uint32_t ctas;        // that run at once, one an SM, or fewer if the caller wants so
  size_t shared_bytes;  // of a CTA
  bool launches_early;  // kernels before those before them have ended, if both want it

  uint32_t warps(size_t bytes_per_warp, size_t fixed_bytes, int most) const {
    return static_cast<uint32_t>(std::min<size_t>((shared_bytes - fixed_bytes) / bytes_per_warp, most));
  }
};
inline cudaError_t find_machine(const Launch& launch, Machine* machine) {
  int device = 0, sms = 0, shared_bytes = 0, major = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  machine->launches_early = major >= 9;
  machine->ctas = launch.max_ctas != 0 ? std::min<uint32_t>(launch.max_ctas, sms) : sms;
  machine->shared_bytes = static_cast<size_t>(shared_bytes);
  return error;
}

// Calls launch.operator()<Dtype>() for a dtype that `window` handles. (Kernels take the dtype, an enum, and not the
// ValueType: nvcc cannot name a kernel by a value of class type.)
template <typename Function>
cudaError_t dispatch(ncast_dtype dtype, Function launch) {
  switch (dtype) {
    case NCAST_BFLOAT16: return launch.template operator()<NCAST_BFLOAT16>();
    case NCAST_FLOAT16: return launch.template operator()<NCAST_FLOAT16>();
    case NCAST_FLOAT32: return launch.template operator()<NCAST_FLOAT32>();
    case NCAST_FLOAT64: return launch.template operator()<NCAST_FLOAT64>();
    case NCAST_FLOAT8_E4M3: return launch.template operator()<NCAST_FLOAT8_E4M3>();
    case NCAST_FLOAT8_E5M2: return launch.template operator()<NCAST_FLOAT8_E5M2>();
    default: return cudaErrorInvalidValue;
  }
}

// Raises a kernel's shared-memory limit and launches it.
template <typename... Parameters, typename... Arguments>
cudaError_t launch_kernel(void (*kernel)(Parameters...), uint32_t ctas, uint32_t warps, size_t shared_bytes,
                          cudaStream_t stream, const Arguments&... arguments) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  if (error != cudaSuccess) return error;
  kernel<<<ctas, warps * 32, shared_bytes, stream>>>(arguments...);
  return cudaGetLastError();
}
// The same, early if the machine can. In a graph it waits, as before any other kernel: programs that read a graph's edges do not
// expect others.
template <typename... Parameters, typename... Arguments>
cudaError_t launch_early(const Machine& machine, void (*kernel)(Parameters...), uint32_t ctas, uint32_t warps,
                         size_t shared_bytes, cudaStream_t stream, const Arguments&... arguments) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  cudaError_t error = cudaStreamIsCapturing(stream, &capture);
  if (error != cudaSuccess) return error;
  if (!machine.launches_early || capture != cudaStreamCaptureStatusNone)
    return launch_kernel(kernel, ctas, warps, shared_bytes, stream, arguments...);
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  if (error != cudaSuccess) return error;
  return device::launch_early(kernel, ctas, warps, shared_bytes, stream, arguments...);
}

// The same for kernels whose warps are alike and share nothing: over all SMs, however few the blocks.
template <format::window::ValueType Type, int most_on_all_sms, typename... Parameters, typename... Arguments>
cudaError_t launch_warps(void (*kernel)(Parameters...), uint64_t blocks, const Launch& launch,
                         const Arguments&... arguments) {
  Machine machine;
  const cudaError_t error = find_machine(launch, &machine);
  if (error != cudaSuccess) return error;
  const size_t bytes = sizeof(WarpMemory<Type, 2>);
  const auto ctas = static_cast<uint32_t>(std::min<uint64_t>(machine.ctas, blocks));
  const int most = launch.max_ctas == 0 ? most_on_all_sms : most_warps<Type>;
  const auto wanted = std::min<uint64_t>((blocks + ctas - 1) / ctas, static_cast<uint64_t>(most));
  const uint32_t warps = machine.warps(bytes, 0, static_cast<int>(wanted));
  return launch_kernel(kernel, ctas, warps, warps * bytes, launch.stream, arguments...);
}

}  // namespace narrowcast::codec::cuda
