// What the warps of kernels that work by blocks share: memory, loads and stores of values and payloads, encoding. Warps
// do not wait for each other, except that a sending warp waits for the signal warp while its queue is full.
#pragma once

#include "channel/memory/memory_channel.cuh"
#include "codec/frame/layout.h"
#include "device/block_codec.cuh"
#include "device/copy.cuh"
#include "select/block_shape.h"

namespace narrowcast::executor::cuda {

using channel::End;
using channel::EndMask;
using channel::PayloadSize;
using channel::SignalQueue;
using channel::SlotFlag;

// Shared memory of a warp. State: what the warps of a kernel have in addition. The buffers are not the first member,
// because ptxas 13.0 miscompiles a pointer that starts as the address of this struct and is swapped with another one:
// it computes the address of the scratch from the swapped pointer.
template <typename Codec, typename State>
struct WarpMemory {
  uint64_t barrier;
  State state;
  // Of the codec of the call, and of that of a reduction's results.
  device::Parameters<Codec> parameters, result_parameters;
  typename Codec::Scratch scratch;
  alignas(128) char buffers[3][Codec::values_bytes];

  // The warp calls this before it encodes or decodes.
  __device__ void use(ncast_codec codec, ncast_codec result_codec, int lane) {
    if (lane == 0) {
      parameters = device::parameters_of<Codec>(codec);
      result_parameters = device::parameters_of<Codec>(result_codec);
    }
    __syncwarp();
  }
};

__device__ inline bool is_bulk(const void* global, uint32_t bytes) {
  return (reinterpret_cast<uintptr_t>(global) | bytes) % format::alignment == 0;
}

// Loads values into shared memory, one block at a time.
class ValueLoader {
 public:
  __device__ ValueLoader(uint64_t* word, int lane) : barrier_(word, lane), lane_(lane) {}

  // Pads the values with zeros to a multiple of 16 bytes.
  __device__ void start(char* to, const char* from, uint32_t bytes) {
    bulk_ = is_bulk(from, bytes);
    if (bulk_) return barrier_.load(to, from, bytes, lane_);
    __syncwarp();
    const uint32_t padded = static_cast<uint32_t>(format::aligned(bytes));
    if (bytes + lane_ < padded) to[bytes + lane_] = 0;
    device::copy_by_warp(to, from, bytes, lane_);
  }
  __device__ void wait() {
    if (bulk_) return barrier_.wait();
    __syncwarp();
  }

 private:
  device::LoadBarrier barrier_;
  int lane_;
  bool bulk_ = false;
};

// Starts to load a payload from a slot whose flag the warp has seen.
__device__ inline void start_loading_payload(char* to, const char* from, uint32_t bytes, int lane) {
  __syncwarp();
  for (uint32_t at = lane * 16; at < bytes; at += 32 * 16) device::start_copy_of_16_bytes(to + at, from + at);
}
__device__ inline void wait_for_payload() {
  device::wait_for_copies_of_16_bytes();
  __syncwarp();
}

// Stores values from shared memory, which the warp has written, to global memory. Call wait_for_store_sources() before
// writing that shared memory again.
__device__ inline void store_values(char* to, const char* from, uint32_t bytes, int lane) {
  if (is_bulk(to, bytes)) return device::bulk_store(to, from, bytes, lane);
  __syncwarp();
  device::copy_by_warp(to, from, bytes, lane);
}

// Shared memory of a CTA: the signal queues of the sending warps, how many of these have not ended, and the memory of
// the warps that have any. Their number is only known when the kernel is launched (select/block_shape.h).
template <typename Warp>
struct CtaMemory {
  SignalQueue queues[select::most_warps_with_buffers];
  uint32_t open;

  __device__ Warp& warp(uint32_t number) {
    static_assert(sizeof(CtaMemory) <= select::common_memory_bytes);
    return reinterpret_cast<Warp*>(reinterpret_cast<char*>(this) + select::common_memory_bytes)[number];
  }
  // All threads of the CTA call this first.
  __device__ void open_all(uint32_t senders) {
    for (uint32_t i = threadIdx.x; i < senders; i += blockDim.x) queues[i].pushed = queues[i].raised = 0;
    if (threadIdx.x == 0) open = senders;
    __syncthreads();
  }
  // Each sending warp calls this when it ends.
  __device__ void close_one(int thread) {
    __syncwarp();
    if (thread == 0) {
      __threadfence_block();
      atomicSub(&open, 1u);
    }
  }
};

// The host checks later whether the peer made a different call: doing it here would cost the kernels registers.
__device__ __noinline__ inline void report_corrupt(const channel::Peers& peers, int peer, int lane) {
  if (lane == 0) channel::stop_kernels(peers, peer, channel::payload_corrupt);
}

// Whether a payload may hold a block of raw_bytes. Only whole blocks are encoded.
template <typename Codec>
__device__ bool is_valid_payload(const device::Parameters<Codec>& parameters, PayloadSize payload, uint32_t raw_bytes) {
  if (Codec::is_identity || !payload.is_coded())
    return raw_bytes != 0 && payload.bytes() == format::aligned(raw_bytes) && !payload.is_coded();
  if constexpr (Codec::is_fixed)
    return raw_bytes == Codec::values_bytes && payload.bytes() == Codec::payload_bytes(parameters);
  return raw_bytes == Codec::values_bytes && payload.bytes() <= raw_bytes;
}

__device__ inline PayloadSize raw_payload(uint32_t raw_bytes) {
  return PayloadSize::of(static_cast<uint32_t>(format::aligned(raw_bytes)), false);
}
// Encodes a block of raw_bytes. Partial blocks and blocks that do not shrink are sent raw.
template <typename Codec>
__device__ PayloadSize encode(const device::Parameters<Codec>& parameters, const device::BlockContext& context,
                              const char* values, uint32_t raw_bytes, char* payload, typename Codec::Scratch& scratch,
                              int lane) {
  const PayloadSize raw = raw_payload(raw_bytes);
  if (Codec::is_identity || raw_bytes != Codec::values_bytes) return raw;
  const uint32_t bytes = device::encode_block<Codec>(parameters, context, values, payload, scratch, lane);
  return bytes == Codec::values_bytes ? raw : PayloadSize::of(bytes, true);
}

}  // namespace narrowcast::executor::cuda
