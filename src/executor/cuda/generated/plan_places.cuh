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

  // Raises the flag of a block of packets in the scratch of `rank`, after the stores to it.
  __device__ void raise_packets(uint32_t rank, uint32_t chunk) { raise_packet_flag(rank, chunk, {}, 0); }
  // Waits for packets in the scratch of `rank`.
  __device__ bool wait_for_packets(uint32_t rank, uint32_t chunk, uint32_t writer) {
    PacketFlag flag{};
    return wait_for_packet_flag(rank, chunk, writer, flag);
  }

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
  // The copy of the scratch that this call uses.
  __device__ uint32_t scratch_copy() const {
    if constexpr (Settings::scratch_copies == 1) return 0;
    return call_number() % Settings::scratch_copies;
  }
  __device__ uint64_t scratch_offset() const { return scratch_copy() * call_.layout.scratch_bytes; }
  __device__ char* scratch_of(uint32_t rank) const {
    return call_.shared[rank] + (call_.buffers[ChunkRef::scratch] - call_.shared[call_.peers.rank]);
  }
  // A block of a chunk of another rank. Waits until that rank has announced where its buffers are.
  __device__ bool find_remote(uint32_t rank, uint32_t chunk, Part& part) {
    const ChunkRef ref{chunk};
    char* base;
    if (ref.buffer() == ChunkRef::scratch) {
      base = scratch_of(rank);
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
  // As start_loading_payload(), in less code.
  __device__ static void start_copies(char* to, const char* from, uint32_t bytes, int thread) {
    __syncwarp();
#pragma unroll 1
    for (uint32_t at = thread * 16; at < bytes; at += 32 * 16) device::start_copy_of_16_bytes(to + at, from + at);
  }
  __device__ bool copy_remote(uint32_t rank, uint32_t chunk, char* to, uint32_t& bytes) {
    Part part;
    if (!find_remote(rank, chunk, part)) return false;
    bytes = part.bytes;
    if (is_bulk(part.values, bytes)) {
      start_copies(to, part.values, bytes, thread_);
      wait_for_payload();
    } else {
      __syncwarp();
      device::copy_by_warp(to, part.values, bytes, thread_);
      __syncwarp();
    }
    return true;
  }

  // --- packets in scratch ---

  __device__ uint64_t* packet_flag(uint32_t rank, uint32_t chunk) const {
    return reinterpret_cast<uint64_t*>(call_.shared[rank] +
                                       call_.layout.packet_flag(scratch_copy(), ChunkRef{chunk}.chunk(), block_));
  }
  __device__ void raise_packet_flag(uint32_t rank, uint32_t chunk, PayloadSize payload, uint32_t values_bytes) {
    device::wait_for_stores(thread_);
    if (thread_ == 0) {
      device::fence_system();
      device::store_relaxed(packet_flag(rank, chunk), PacketFlag::of(call_number(), payload, values_bytes).word);
    }
    __syncwarp();
  }
  // flag: set in thread 0 only.
  __device__ bool wait_for_packet_flag(uint32_t rank, uint32_t chunk, uint32_t writer, PacketFlag& flag) {
    const uint64_t* const from = packet_flag(rank, chunk);
    return wait(
        [&] {
          flag.word = device::load_acquire(from);
          return flag.is_of(call_number());
        },
        static_cast<int>(writer));
  }
};

}  // namespace narrowcast::executor::cuda::generated
