// values -> a packed frame in one pass. The warps of a CTA, the coders, code a tile of neighbouring blocks. Two service
// warps publish its size and wait for its position while the coders already code the next tiles. One warp of the grid
// adds up the sizes. Short frames have their own kernel (short_frame.cuh).
#pragma once

#include "codec/frame/cuda/frame_output.cuh"
#include "codec/frame/cuda/launch.h"
#include "codec/frame/cuda/short_frame.cuh"
#include "codec/frame/cuda/tiles.cuh"
#include "codec/frame/cuda/warps.cuh"
#include "device/early_launch.cuh"
#include "device/ptx/barrier.cuh"

namespace narrowcast::codec::cuda {

// A payload waits two turns for its position: first in a buffer in shared memory, then in the registers of its warp,
// from which it is stored. So a warp has three buffers: for values, for the payload being encoded, and for the waiting
// payload. Every tile waits for the slowest block before it. Fewer turns would hide too little of this wait; more turns
// would leave shared memory for fewer warps.
inline constexpr int buffer_count = 3;
inline constexpr uint32_t turns_to_store = 2;
inline constexpr uint32_t stage_count = 4;  // a power of two above turns_to_store
template <BlockCodec Codec>
inline constexpr int max_coders = Codec::values_bytes > 4096 ? 9 : 18;
inline constexpr int service_warps = 3;
// Determines the size of the workspace, which must suffice on any device.
inline constexpr int min_coders = 2;

// Shared by the warps of a CTA for one tile.
struct TileStage {
  // For each coder: the size of its payload; after `counted`, its offset in the tile; after `placed`, its offset in the
  // frame.
  uint32_t units[32];
  uint32_t next_tile;  // the CTA's tile two turns later
  uint64_t coded;      // barrier: all coders have written their units
  uint64_t counted;    // barrier: the publisher has added them up
  uint64_t claimed;    // barrier: the publisher has claimed another tile
  uint64_t placed;     // barrier: the placer has added the tile's offset
};

// A payload that has been coded but not stored.
struct Waiting {
  uint32_t block;
  uint32_t bytes;   // 0: no payload
  uint32_t buffer;  // index of the warp's buffer
};

struct FrameMemory {
  TileStage stages[stage_count];
  uint32_t first_tile, second_tile;
  uint64_t second;  // barrier: the publisher has claimed the second tile
};

__device__ inline TileStage& stage_of(FrameMemory& memory, uint32_t turn) { return memory.stages[turn % stage_count]; }
__device__ inline uint32_t parity_of(uint32_t turn) { return turn / stage_count % 2; }

// Prefetches the values of a tile. Called by one thread.
template <BlockCodec Codec>
__device__ void prefetch_tile(const char* values, uint32_t whole_blocks, uint32_t tile, int coders) {
  const uint32_t block = tile * coders;
  if (is_aligned(values) && block < whole_blocks)
    device::prefetch_to_l2(values + uint64_t{block} * Codec::values_bytes,
                           min(whole_blocks - block, coders) * Codec::values_bytes);
}

// The publisher, a service warp. In each turn it adds up the units of the CTA's tile, publishes them at once, and
// claims another tile as late as possible, because tiles that are published out of order make other CTAs wait.
template <BlockCodec Codec>
__device__ void publish_tiles(FrameMemory& memory, Workspace* workspace, const char* values, uint32_t whole_blocks,
                              uint32_t tile_count, int coders, int lane) {
  uint32_t tile = memory.first_tile;
  if (lane == 0) {
    wait_for_first_tiles(workspace);
    memory.second_tile = claim_tile(workspace);
    prefetch_tile<Codec>(values, whole_blocks, memory.second_tile, coders);
  }
  device::barrier_arrive(&memory.second);
  device::barrier_wait(&memory.second, 0);
  uint32_t next = memory.second_tile;
  for (uint32_t turn = 0; tile < tile_count; ++turn) {
    TileStage& stage = stage_of(memory, turn);
    device::barrier_wait(&stage.coded, parity_of(turn));
    const uint32_t units = lane < coders ? stage.units[lane] : 0;
    const uint32_t up_to = device::inclusive_scan(units);
    if (lane == 31) publish(workspace, tile, up_to);
    stage.units[lane] = up_to - units;
    device::barrier_arrive(&stage.counted);
    uint32_t claimed = 0;
    if (lane == 31) {
      claimed = claim_tile(workspace);
      stage.next_tile = claimed;
      prefetch_tile<Codec>(values, whole_blocks, claimed, coders);
    }
    device::barrier_arrive(&stage.claimed);
    tile = next;
    next = __shfl_sync(device::all_lanes, claimed, 31);
  }
}

// The placer, a service warp. In each turn it waits until the position of the CTA's tile in the frame is known.
__device__ inline void place_tiles(FrameMemory& memory, const Workspace* workspace, uint32_t tile_count, int lane) {
  device::barrier_wait(&memory.second, 0);
  uint32_t tile = memory.first_tile, next = memory.second_tile;
  for (uint32_t turn = 0; tile < tile_count; ++turn) {
    TileStage& stage = stage_of(memory, turn);
    device::barrier_wait(&stage.counted, parity_of(turn));
    const uint32_t begin = begin_of(workspace, tile);
    device::barrier_wait(&stage.claimed, parity_of(turn));
    tile = next;
    next = stage.next_tile;
    stage.units[lane] += begin;
    device::barrier_arrive(&stage.placed);
  }
}

template <typename Codec>
__global__ void __launch_bounds__((max_coders<Codec> + service_warps) * 32, 1)
    encode_frame_kernel(const __grid_constant__ EncodeFrameArguments arguments) {
  const char* const values = arguments.values;
  const format::FrameHeader& header = arguments.header;
  char* const frame = arguments.frame;
  auto* const workspace = static_cast<Workspace*>(arguments.workspace);
  using Memory = WarpMemory<Codec, buffer_count>;
  constexpr uint32_t block_bytes = Codec::values_bytes;
  const int coders = blockDim.x / 32 - service_warps;
  extern __shared__ char shared_memory[];
  const int lane = device::lane_id(), warp = static_cast<int>(device::warp_id());
  auto* memories = reinterpret_cast<Memory*>(shared_memory);
  FrameMemory& tile_memory = *reinterpret_cast<FrameMemory*>(memories + coders);
  const uint32_t tile_count = (header.blocks + coders - 1) / coders;
  const uint32_t whole_blocks = static_cast<uint32_t>(header.elems / block_elems<Codec>);

  if (threadIdx.x == 0) {
    for (TileStage& stage : tile_memory.stages) {
      device::barrier_init(&stage.coded, coders);
      device::barrier_init(&stage.counted, 32);
      device::barrier_init(&stage.claimed, 32);
      device::barrier_init(&stage.placed, 32);
    }
    device::barrier_init(&tile_memory.second, 32);
    prefetch_tile<Codec>(values, whole_blocks, blockIdx.x, coders);  // probably this CTA's first tile
    device::wait_for_stream();
    tile_memory.first_tile = claim_tile(workspace);
  }
  __syncthreads();
  if (warp == coders)
    return publish_tiles<Codec>(tile_memory, workspace, values, whole_blocks, tile_count, coders, lane);
  if (warp == coders + 1) return place_tiles(tile_memory, workspace, tile_count, lane);
  if (warp == coders + 2) {
    if (tile_memory.first_tile == 0) add_up_tiles(workspace, tile_count, lane);
    return;
  }

  Memory& memory = memories[warp];
  BlockLoader<Codec> loader(values, &memory.barrier, lane);
  const FrameWriter writer{frame, header, format::frame_layout(header.elems, block_elems<Codec>).payload_offset};
  const uint32_t last_bytes =
      static_cast<uint32_t>(format::aligned(header.elems % block_elems<Codec> * value_bytes<Codec>));

  uint32_t tile = tile_memory.first_tile;
  uint32_t here = 0, out = 1;  // the buffers of the values and of the payload
  const auto start_load = [&] {
    const uint32_t block = tile * coders + warp;
    if (tile < tile_count && block < whole_blocks) loader.start(memory.buffers[here], block);
  };
  start_load();

  Waiting in_buffer{0, 0, 2}, in_registers{0, 0, 0};  // the payloads of the previous turn and of the one before it
  Outgoing<Codec> outgoing;
  const auto load_registers = [&] {
    __syncwarp();
    outgoing.load(memory.buffers[in_buffer.buffer], in_buffer.block < whole_blocks ? in_buffer.bytes : 0, lane);
    in_registers = in_buffer;
  };
  const auto store = [&](uint32_t turn) {
    TileStage& stage = stage_of(tile_memory, turn);
    device::barrier_wait(&stage.placed, parity_of(turn));
    if (in_registers.bytes == 0) return;
    const uint32_t begin = stage.units[warp];
    char* to = writer.payload_at(begin);
    if (in_registers.block < whole_blocks) {
      outgoing.store(to, in_registers.bytes, lane);
    } else {
      store_short_block<Codec>(to, values, header.elems, lane);
    }
    writer.write_end(in_registers.block, begin + in_registers.bytes / format::alignment, lane);
  };

  const auto parameters = device::parameters_of<Codec>(arguments.codec);
  uint32_t turn = 0;
  for (; tile < tile_count; ++turn) {
    TileStage& stage = stage_of(tile_memory, turn);
    Waiting made{tile * coders + warp, 0, out};
    if (made.block < whole_blocks) {
      loader.wait();
      made.bytes = device::encode_block<Codec>(parameters, device::context_in_frame<Codec>(made.block),
                                               memory.buffers[here], memory.buffers[out], memory.scratch, lane);
      if (made.bytes == block_bytes) {  // raw: the values stay in their buffer; the next block uses the other one
        made.buffer = here;
        here = out;
        device::order_stores_before_bulk_copies();
      }
    } else if (made.block == whole_blocks) {
      made.bytes = last_bytes;  // 0 if all blocks are whole
    }
    if (lane == 0) {
      stage.units[warp] = made.bytes / format::alignment;
      device::barrier_arrive(&stage.coded);
    }
    if (turn == 0) {
      device::barrier_wait(&tile_memory.second, 0);
      tile = tile_memory.second_tile;
    } else {
      TileStage& before = stage_of(tile_memory, turn - 1);
      device::barrier_wait(&before.claimed, parity_of(turn - 1));
      tile = before.next_tile;
    }
    start_load();
    if (turn >= turns_to_store) store(turn - turns_to_store);
    load_registers();
    out = in_buffer.buffer;
    in_buffer = made;
  }
  // Store the payloads that still wait.
  if (turn >= turns_to_store) store(turn - turns_to_store);
  load_registers();
  if (turn != 0) store(turn - 1);
}

}  // namespace narrowcast::codec::cuda
