// Parts that the codec kernels share: the shared memory of a warp, the loading of blocks, and copies.
#pragma once

#include <cstdint>
#include <type_traits>

#include "codec/frame/layout.h"
#include "device/block_codec.cuh"
#include "device/ptx/bulk_copy.cuh"
#include "device/warp.cuh"

namespace narrowcast::codec::cuda {

using device::block_elems;
using device::BlockCodec;
using device::value_bytes;

// The shared memory of a warp, with buffers of a block's size. Values and payloads swap buffers, so that a raw block is
// stored from where it was loaded. With less alignment, bulk copies would be slower.
template <BlockCodec Codec, int Buffers>
struct alignas(128) WarpMemory {
  char buffers[Buffers][Codec::values_bytes];
  typename Codec::Scratch scratch;
  uint64_t barrier;
};

// The maximum number of warps per CTA; there is one CTA per SM. If a kernel uses only some of the SMs, as many warps as
// fit into shared memory are best, because they hide each other's latencies. If it uses all SMs, memory bandwidth is
// the limit, and more warps than are needed to saturate it make it slower. Encoders read more and need fewer.
template <BlockCodec Codec>
inline constexpr int max_warps = Codec::values_bytes > 4096 ? 13 : 26;
template <BlockCodec Codec>
inline constexpr int encoders_on_all_sms = Codec::values_bytes > 4096 ? 12 : 16;
template <BlockCodec Codec>
inline constexpr int decoders_on_all_sms = Codec::values_bytes > 4096 ? 12 : 20;

// Copies with a warp, for cases in which a bulk copy is not possible: any alignment and any number of bytes.
__device__ inline void copy_bytes(char* to, const char* from, uint32_t bytes, int lane) {
  for (uint32_t at = lane; at < bytes; at += 32) to[at] = from[at];
}
// The same for a whole block. Both pointers must be aligned to the value type.
template <BlockCodec Codec>
__device__ void copy_block(char* to, const char* from, int lane) {
  using Word = std::conditional_t<value_bytes<Codec> == 1, uint8_t,
                                  std::conditional_t<value_bytes<Codec> == 2, uint16_t,
                                                     std::conditional_t<value_bytes<Codec> == 4, uint32_t, uint64_t>>>;
#pragma unroll 8
  for (int i = lane; i < block_elems<Codec>; i += 32)
    reinterpret_cast<Word*>(to)[i] = reinterpret_cast<const Word*>(from)[i];
}

__device__ inline bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % format::alignment == 0;
}

// Loads whole blocks of values to shared memory, one at a time. Called by a whole warp.
template <BlockCodec Codec>
class BlockLoader {
 public:
  __device__ BlockLoader(const char* values, uint64_t* barrier, int lane)
      : values_(values), aligned_(is_aligned(values)), lane_(lane), barrier_(barrier, lane) {}

  // Starts to load `block`, and prefetches block `following` if it is below `end`.
  __device__ void start(char* to, uint32_t block, uint32_t following = 0, uint32_t end = 0) {
    const char* from = values_ + uint64_t{block} * Codec::values_bytes;
    if (aligned_) {
      barrier_.load(to, from, Codec::values_bytes, lane_);
      if (lane_ == 0 && following < end)
        device::prefetch_to_l2(values_ + uint64_t{following} * Codec::values_bytes, Codec::values_bytes);
    } else {
      __syncwarp();
      copy_block<Codec>(to, from, lane_);
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

// Stores a short last block raw, padded with zeros to the alignment. Returns the number of bytes stored.
template <BlockCodec Codec>
__device__ uint32_t store_short_block(char* to, const char* values, uint64_t elems, int lane) {
  const uint64_t first = elems / block_elems<Codec> * block_elems<Codec>;
  const uint32_t bytes = static_cast<uint32_t>(elems - first) * value_bytes<Codec>;
  const uint32_t stored = static_cast<uint32_t>(format::aligned(bytes));
  copy_bytes(to, values + first * value_bytes<Codec>, bytes, lane);
  if (bytes + lane < stored) to[bytes + lane] = 0;
  return stored;
}

}  // namespace narrowcast::codec::cuda
