// Parts that the second kernels of batches share: finding the frame of a block, and the codec of its type.
#pragma once

#include <algorithm>

#include "codec/frame/cuda/batch/arguments.h"
#include "codec/frame/cuda/batch/lay_out.cuh"
#include "codec/frame/cuda/warps.cuh"

namespace narrowcast::codec::cuda {

// All blocks of a batch have numbers: those of the first frame, then those of the second, and so on. Each CTA has this
// table in shared memory.
struct BatchBlocks {
  uint64_t begins[max_batch_chunks + 1];  // number of the first block of each chunk; of all blocks
  uint32_t block_bytes;                   // the largest of all frames

  // Called by one warp, before a __syncthreads().
  __device__ void load(const BatchLayout& layout, const char* workspace, int lane) {
    constexpr uint32_t per_lane = max_batch_chunks / 32;
    const auto* const chunks = reinterpret_cast<const BatchChunk*>(workspace);
    uint64_t blocks[per_lane], sum = 0;
    uint32_t largest = 0;
#pragma unroll
    for (uint32_t i = 0; i < per_lane; ++i) {
      const uint32_t chunk = lane * per_lane + i;
      const BatchChunk of_chunk = chunk < layout.chunks ? chunks[chunk] : BatchChunk{};
      blocks[i] = of_chunk.blocks;
      sum += of_chunk.blocks;
      largest = max(largest, of_chunk.block_bytes);
    }
    uint64_t up_to = sum;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const uint64_t below = __shfl_sync(device::all_lanes, up_to, max(lane - step, 0));
      if (lane >= step) up_to += below;
    }
    uint64_t begin = up_to - sum;
#pragma unroll
    for (uint32_t i = 0; i < per_lane; ++i) {
      begins[lane * per_lane + i] = begin;
      begin += blocks[i];
    }
    if (lane == 31) begins[max_batch_chunks] = begin;
    largest = __reduce_max_sync(device::all_lanes, largest);
    if (lane == 0) block_bytes = largest;
  }

  __device__ uint64_t count() const { return begins[max_batch_chunks]; }

  // Finds the frame of a block and the block's number in the frame. Called by single threads; block < count().
  __device__ uint32_t find(const BatchLayout& layout, const BatchEntry* entries, uint64_t block,
                           uint32_t* block_in_frame) const {
    uint32_t chunk = 0, chunk_end = max_batch_chunks;
    while (chunk_end - chunk > 1) {
      const uint32_t middle = (chunk + chunk_end) / 2;
      if (begins[middle] <= block) {
        chunk = middle;
      } else {
        chunk_end = middle;
      }
    }
    // Frames without blocks begin where the next frame begins, so the last frame that begins here or before has blocks.
    const uint64_t in_chunk = block - begins[chunk];
    uint32_t frame = chunk * layout.chunk_frames;
    uint32_t end = min(layout.count - frame, layout.chunk_frames) + frame;
    while (end - frame > 1) {
      const uint32_t middle = frame + (end - frame) / 2;
      if (entries[middle].begin <= in_chunk) {
        frame = middle;
      } else {
        end = middle;
      }
    }
    *block_in_frame = static_cast<uint32_t>(in_chunk - entries[frame].begin);
    return frame;
  }
};

// The codecs of all value types. Types that are stored raw have none.
template <template <ncast_dtype> typename Codec>
struct CodecFamily {
  // Calls function.operator()<Codec<dtype>>(), or returns `otherwise` if the type has no codec.
  template <typename Result, typename Function>
  __device__ static Result visit(uint32_t dtype, Result otherwise, Function function) {
    switch (dtype) {
      case NCAST_INT8: return call<NCAST_INT8>(otherwise, function);
      case NCAST_UINT8: return call<NCAST_UINT8>(otherwise, function);
      case NCAST_INT32: return call<NCAST_INT32>(otherwise, function);
      case NCAST_UINT32: return call<NCAST_UINT32>(otherwise, function);
      case NCAST_INT64: return call<NCAST_INT64>(otherwise, function);
      case NCAST_UINT64: return call<NCAST_UINT64>(otherwise, function);
      case NCAST_FLOAT16: return call<NCAST_FLOAT16>(otherwise, function);
      case NCAST_FLOAT32: return call<NCAST_FLOAT32>(otherwise, function);
      case NCAST_FLOAT64: return call<NCAST_FLOAT64>(otherwise, function);
      case NCAST_BFLOAT16: return call<NCAST_BFLOAT16>(otherwise, function);
      case NCAST_FLOAT8_E4M3: return call<NCAST_FLOAT8_E4M3>(otherwise, function);
      case NCAST_FLOAT8_E5M2: return call<NCAST_FLOAT8_E5M2>(otherwise, function);
      default: return otherwise;
    }
  }

  // The largest scratch of a codec.
  template <ncast_dtype... Dtypes>
  static constexpr size_t largest_scratch() {
    return std::max({scratch_of<Dtypes>()...});
  }
  static constexpr size_t scratch_bytes =
      largest_scratch<NCAST_INT8, NCAST_UINT8, NCAST_INT32, NCAST_UINT32, NCAST_INT64, NCAST_UINT64, NCAST_FLOAT16,
                      NCAST_FLOAT32, NCAST_FLOAT64, NCAST_BFLOAT16, NCAST_FLOAT8_E4M3, NCAST_FLOAT8_E5M2>();

 private:
  template <ncast_dtype Dtype>
  static constexpr bool is_coded() {
    if constexpr (requires { typename Codec<Dtype>::Scratch; }) return !Codec<Dtype>::is_identity;
    return false;
  }
  template <ncast_dtype Dtype>
  static constexpr size_t scratch_of() {
    if constexpr (is_coded<Dtype>()) return sizeof(typename Codec<Dtype>::Scratch);
    return 0;
  }
  template <ncast_dtype Dtype, typename Result, typename Function>
  __device__ static Result call(Result otherwise, Function& function) {
    if constexpr (is_coded<Dtype>()) return function.template operator()<Codec<Dtype>>();
    return otherwise;
  }
};

// The shared memory of a warp: a barrier, scratch, and buffers of the largest block of the batch.
template <typename Family, int Buffers>
struct BatchWarpMemory {
  static constexpr uint32_t buffers_offset = (sizeof(uint64_t) + Family::scratch_bytes + 127) / 128 * 128;
  static constexpr uint32_t bytes(uint32_t block_bytes) { return buffers_offset + Buffers * block_bytes; }

  char* begin;
  uint32_t block_bytes;

  __device__ uint64_t* barrier() const { return reinterpret_cast<uint64_t*>(begin); }
  template <typename Scratch>
  __device__ Scratch& scratch() const {
    return *reinterpret_cast<Scratch*>(begin + sizeof(uint64_t));
  }
  __device__ char* buffer(uint32_t number) const { return begin + buffers_offset + number * block_bytes; }
};

template <typename Word>
__device__ void copy_words(char* to, const char* from, uint32_t bytes, int lane) {
#pragma unroll 8
  for (uint32_t i = lane; i < bytes / sizeof(Word); i += 32)
    reinterpret_cast<Word*>(to)[i] = reinterpret_cast<const Word*>(from)[i];
}
// Copies a whole block between addresses that are aligned to its value type.
__device__ inline void copy_values(char* to, const char* from, uint32_t bytes, uint32_t value_bytes, int lane) {
  switch (value_bytes) {
    case 8: return copy_words<uint64_t>(to, from, bytes, lane);
    case 4: return copy_words<uint32_t>(to, from, bytes, lane);
    case 2: return copy_words<uint16_t>(to, from, bytes, lane);
    default: return copy_words<uint8_t>(to, from, bytes, lane);
  }
}
// Copies the values of a block that is not whole, to or from its payload.
__device__ inline void copy_short_block(char* to, const char* from, uint32_t bytes, int lane) {
  const uint32_t vectors = is_aligned(to) && is_aligned(from) ? bytes / static_cast<uint32_t>(sizeof(uint4)) : 0;
#pragma unroll 4
  for (uint32_t i = lane; i < vectors; i += 32)
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
  const uint32_t done = vectors * static_cast<uint32_t>(sizeof(uint4));
  copy_bytes(to + done, from + done, bytes - done, lane);
}

}  // namespace narrowcast::codec::cuda
