// What the warps of a CTA that encodes a batch (encode.cuh) share: the tiles that it has claimed, and its turns.
#pragma once

#include <cstdint>

#include "codec/frame/cuda/batch/blocks.cuh"

namespace narrowcast::codec::cuda {

// The turns that a payload waits for its position, while the next blocks are coded.
inline constexpr uint32_t batch_waiting_turns = 1;
// The buffers of a coder: for values, for the payload that is being encoded, and for those that wait.
inline constexpr int batch_encode_buffers = 2 + batch_waiting_turns;
inline constexpr uint32_t max_batch_coders = 18;

// A coder's block in a tile.
struct BatchTask {
  const char* values;  // of the frame; NULL if the coder has no block in this tile
  char* frame;
  uint64_t elems;
  uint32_t number;  // of the frame
  uint32_t block;   // in the frame
  uint8_t dtype;
  bool is_raw, is_fixed;
};

// A tile that a CTA has claimed, for every other turn.
struct BatchClaim {
  BatchTask tasks[32];  // by coder
  uint32_t tile;
};
// Shared by the warps of a CTA for one turn.
struct BatchTurn {
  uint32_t units[32];   // by coder: the size of the payload; after `counted` where it begins in the part of its frame
                        // that is in this tile, and after `placed` in the frame
  uint32_t continuing;  // coders, the first ones, whose blocks continue a frame of the tile before
  uint32_t total;       // units of the tile
  uint32_t next_tile;   // the CTA's tile in the next turn
  uint64_t coded;       // barrier: all coders have written their units
  uint64_t counted;     // barrier: the publisher has replaced them, and has written the claim of two turns later
  uint64_t placed;      // barrier: the placer has replaced them
};
struct alignas(128) EncodeBatchMemory {
  static constexpr uint32_t turn_count = batch_waiting_turns + 1;

  BatchBlocks blocks;
  BatchClaim claims[2];
  BatchTurn turns[turn_count];
  uint32_t first_tile;
  uint64_t second;  // barrier: the publisher has written the claim of the second turn

  __device__ BatchClaim& claim(uint32_t turn) { return claims[turn % 2]; }
  __device__ BatchTurn& turn(uint32_t number) { return turns[number % turn_count]; }
  __device__ static uint32_t parity(uint32_t turn) { return turn / turn_count % 2; }
};

// The number of coders of each CTA: the minimum for the minimum number of turns.
__device__ inline uint32_t batch_coders(uint64_t blocks, uint32_t most) {
  const uint64_t of_cta = (blocks + gridDim.x - 1) / gridDim.x;
  const uint64_t turns = (of_cta + most - 1) / most;
  if (turns == 0) return min_batch_coders;
  return max(static_cast<uint32_t>((of_cta + turns - 1) / turns), min_batch_coders);
}

}  // namespace narrowcast::codec::cuda
