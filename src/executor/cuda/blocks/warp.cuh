// What every warp of a block kernel has: a coding, buffers, blocks of values to bring and to store, payloads that come.
// Each warp has its own and waits for nobody else in its CTA, but for the signal warp when its queue is full.
#pragma once

#include "channel/memory/memory_channel.cuh"
#include "channel/peer/call_check.cuh"
#include "codec/frame/layout.h"
#include "device/block_codec.cuh"
#include "device/copy.cuh"
#include "executor/cuda/blocks/call.h"

namespace narrowcast::executor::cuda {

using channel::End;
using channel::EndMask;
using channel::PayloadSize;
using channel::SignalQueue;
using channel::SlotFlag;

// The buffers do not come first: of a pointer that begins as this struct's address and changes places with another one,
// ptxas 13.0 has been seen to take the address of the scratch after the change.
template <typename Codec>
struct WarpMemory {
  uint64_t barrier;
  typename Codec::Scratch scratch;
  alignas(128) char buffers[3][Codec::values_bytes];
};

__device__ inline bool is_bulk(const void* global, uint32_t bytes) {
  return (reinterpret_cast<uintptr_t>(global) | bytes) % format::alignment == 0;
}

// Brings values to shared memory, one block at a time.
class ValueLoader {
 public:
  __device__ ValueLoader(uint64_t* word, int lane) : barrier_(word, lane), lane_(lane) {}

  // What is loaded is zero up to a multiple of 16 bytes.
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

// The same for a payload, from a slot whose flag the warp has seen.
__device__ inline void start_loading_payload(char* to, const char* from, uint32_t bytes, int lane) {
  __syncwarp();
  for (uint32_t at = lane * 16; at < bytes; at += 32 * 16) device::start_copy_of_16_bytes(to + at, from + at);
}
__device__ inline void wait_for_payload() {
  device::wait_for_copies_of_16_bytes();
  __syncwarp();
}

// From shared memory, which the warp has written, to global memory; wait_for_store_sources() before it is written
// again.
__device__ inline void store_values(char* to, const char* from, uint32_t bytes, int lane) {
  if (is_bulk(to, bytes)) return device::bulk_store(to, from, bytes, lane);
  __syncwarp();
  device::copy_by_warp(to, from, bytes, lane);
}

// One block of a piece; 0 bytes: the piece has none of that number.
struct BlockOf {
  char* values;
  uint32_t bytes;
};
template <uint32_t block_bytes>
__device__ BlockOf block_of(const Piece& piece, uint32_t block) {
  const uint64_t begin = uint64_t{block} * block_bytes;
  if (begin >= piece.bytes) return {nullptr, 0};
  const uint64_t left = piece.bytes - begin;
  return {piece.values + begin, left < block_bytes ? static_cast<uint32_t>(left) : block_bytes};
}

// What the warps of a CTA share: the queues of those that send, and how many of them have not ended.
template <uint32_t most_senders>
struct alignas(128) Signals {
  SignalQueue queues[most_senders];
  uint32_t open;

  // All threads of the CTA, before anything else.
  __device__ void open_all(uint32_t senders) {
    for (uint32_t i = threadIdx.x; i < senders; i += blockDim.x) queues[i].pushed = queues[i].raised = 0;
    if (threadIdx.x == 0) open = senders;
    __syncthreads();
  }
  // Each sending warp when it ends.
  __device__ void close_one(int thread) {
    __syncwarp();
    if (thread == 0) {
      __threadfence_block();
      atomicSub(&open, 1u);
    }
  }
};

// The host then finds out whether the peer is in another call: code for that here would cost the kernels registers.
__device__ __noinline__ inline void report_corrupt(const channel::Peers& peers, int peer, int lane) {
  if (lane == 0) channel::stop_kernels(peers, peer, channel::payload_corrupt);
}

// One warp of the kernel; those that send count wire bytes.
__device__ inline void count_raw_bytes(const BlockCall& call, int lane) {
  if (lane == 0 && call.raw_bytes != 0) atomicAdd(&call.sent->raw_bytes, call.raw_bytes);
}

// By one warp of CTA 0.
__device__ inline channel::CallCheck announce(const BlockCall& call, int lane) {
  return {call.peers, call.announced, call.of_messages, lane};
}

// Whether a payload can be of a block of raw_bytes; only whole blocks are coded.
template <typename Codec>
__device__ bool can_be_of(const ncast_codec& codec, PayloadSize payload, uint32_t raw_bytes) {
  if (Codec::is_identity || !payload.is_coded())
    return raw_bytes != 0 && payload.bytes() == format::aligned(raw_bytes) && !payload.is_coded();
  if constexpr (Codec::is_fixed)
    return raw_bytes == Codec::values_bytes && payload.bytes() == Codec::payload_bytes(codec);
  return raw_bytes == Codec::values_bytes && payload.bytes() <= raw_bytes;
}

// Encodes a block of raw_bytes; one that is not whole, or does not shrink, goes as it is.
template <typename Codec>
__device__ PayloadSize encode(const ncast_codec& codec, const char* values, uint32_t raw_bytes, char* payload,
                              typename Codec::Scratch& scratch, int lane) {
  const auto raw = PayloadSize::of(static_cast<uint32_t>(format::aligned(raw_bytes)), false);
  if (Codec::is_identity || raw_bytes != Codec::values_bytes) return raw;
  const uint32_t bytes = device::encode_block<Codec>(codec, values, payload, scratch, lane);
  return bytes == Codec::values_bytes ? raw : PayloadSize::of(bytes, true);
}

}  // namespace narrowcast::executor::cuda
