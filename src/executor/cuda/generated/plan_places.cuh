// Where the blocks of a warp of a generated kernel are: chunks of this rank's buffers, and of those of other ranks.
#pragma once

#include "device/copy.cuh"
#include "executor/cuda/blocks/warp_memory.cuh"
#include "executor/cuda/generated/plan_turns.cuh"

namespace narrowcast::executor::cuda::generated {

// Settings: see plan_warp.cuh.
template <typename Settings>
class PlanPlaces : public PlanTurns {
 public:
  // A block of a chunk. 0 bytes: the chunk has no such block.
  struct Part {
    char* values;
    uint32_t bytes;
  };

 protected:
  static constexpr uint32_t block_bytes = Settings::Codec::values_bytes;

  __device__ PlanPlaces(const PlanCall& call, uint32_t index, int thread) : PlanTurns(call, index, thread) {}

  __device__ Part part_of(char* base, ChunkRef ref, uint64_t block) const {
    const uint64_t at = block * block_bytes;
    if (ref.buffer() == ChunkRef::scratch) {
      const uint64_t whole = (call_.first_block + block) * block_bytes;
      base += scratch_offset() + ref.chunk() * call_.scratch_chunk_bytes + at;
      return cut(base, whole, call_.chunk_bytes);
    }
    const uint64_t begin = (call_.first_block + block) * block_bytes;
    const uint64_t piece = ref.piece() * call_.piece_bytes;
    if constexpr (Settings::has_one_chunk) {
      return cut(base + piece + begin, begin, call_.piece_bytes);
    } else {
      const uint64_t first = min(ref.chunk() * call_.chunk_bytes, call_.piece_bytes);
      const uint64_t size = min(call_.chunk_bytes, call_.piece_bytes - first);
      return cut(base + piece + first + begin, begin, size);
    }
  }
  __device__ static Part cut(char* values, uint64_t begin, uint64_t size) {
    if (begin >= size) return {nullptr, 0};
    return {values, static_cast<uint32_t>(min(size - begin, uint64_t{block_bytes}))};
  }
  __device__ Part part(uint32_t chunk, uint32_t block) const {
    if (block >= call_.blocks) return {nullptr, 0};
    const ChunkRef ref{chunk};
    return part_of(call_.buffers[ref.buffer()], ref, block);
  }
  // Offset of the copy of the scratch that this call uses.
  __device__ uint64_t scratch_offset() const {
    if constexpr (Settings::scratch_copies == 1) return 0;
    return call_number() % Settings::scratch_copies * call_.layout.scratch_bytes;
  }
  // A block of a chunk of another rank. Waits until that rank has announced where its buffers are.
  __device__ bool find_remote(uint32_t rank, uint32_t chunk, Part& part) {
    const ChunkRef ref{chunk};
    char* base;
    if (ref.buffer() == ChunkRef::scratch) {
      base = call_.shared[rank] + (call_.buffers[ChunkRef::scratch] - call_.shared[call_.peers.rank]);
    } else {
      BufferWord word{0};
      const auto* const from = reinterpret_cast<const uint64_t*>(
          call_.shared[call_.peers.rank] +
          call_.layout.buffer_word(call_number(), static_cast<int>(rank), ref.buffer()));
      if (!wait(
              [&] {
                word.word = device::load_acquire(from);
                return word.is_of(call_number());
              },
              static_cast<int>(rank)))
        return false;
      word.word = __shfl_sync(device::all_lanes, static_cast<unsigned long long>(word.word), 0);
      base = call_.regions[word.region() * channel::max_gpu_ranks + rank] + word.offset();
    }
    part = part_of(base, ref, block_);
    return true;
  }
  __device__ bool copy_remote(uint32_t rank, uint32_t chunk, char* to, uint32_t& bytes) {
    Part part;
    if (!find_remote(rank, chunk, part)) return false;
    bytes = part.bytes;
    if (is_bulk(part.values, bytes)) {
      start_loading_payload(to, part.values, bytes, thread_);
      wait_for_payload();
    } else {
      __syncwarp();
      device::copy_by_warp(to, part.values, bytes, thread_);
      __syncwarp();
    }
    return true;
  }
};

}  // namespace narrowcast::executor::cuda::generated
