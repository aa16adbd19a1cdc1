// The service warps of a CTA that encodes a batch (encode.cuh).
#pragma once

#include "codec/frame/cuda/batch/encode_tiles.cuh"
#include "codec/frame/cuda/tiles.cuh"
#include "device/ptx/barrier.cuh"

namespace narrowcast::codec::cuda {

// A service warp: claims tiles, finds the frames of their blocks, and publishes the sizes of their payloads.
class BatchPublisher {
 public:
  __device__ BatchPublisher(const EncodeBatchArguments& arguments, EncodeBatchMemory& memory, uint32_t coders, int lane)
      : arguments_(arguments),
        memory_(memory),
        entries_(reinterpret_cast<const BatchEntry*>(arguments.workspace + arguments.layout.entries_offset())),
        workspace_(reinterpret_cast<Workspace*>(arguments.workspace + arguments.layout.tiles_offset())),
        coders_(coders),
        lane_(lane) {}

  // Claims the first tile. Called before a __syncthreads().
  __device__ void begin() {
    const uint32_t tile = claim();
    write(memory_.claims[0], tile, find(tile));
    if (lane_ == 0) memory_.first_tile = tile;
  }

  __device__ void run(uint32_t tile_count) {
    uint32_t tile = memory_.first_tile;
    if (tile >= tile_count) return;
    // Tiles that are coded at the same time should be neighbours. This does not wait for CTAs that cannot start.
    if (lane_ == 0) wait_for_first_tiles(workspace_);
    __syncwarp();
    uint32_t next = claim();
    write(memory_.claims[1], next, find(next));
    device::barrier_arrive(&memory_.second);
    for (uint32_t turn = 0; tile < tile_count; ++turn) {
      BatchTurn& stage = memory_.turn(turn);
      const uint32_t claimed = claim();
      const BatchTask claimed_task = find(claimed);
      device::barrier_wait(&stage.coded, EncodeBatchMemory::parity(turn));
      publish_tile(stage, memory_.claim(turn).tasks[lane_], tile);
      if (lane_ == 0) stage.next_tile = next;
      write(memory_.claim(turn), claimed, claimed_task);
      device::barrier_arrive(&stage.counted);
      tile = next;
      next = claimed;
    }
  }

 private:
  __device__ uint32_t claim() const {
    uint32_t tile = 0;
    if (lane_ == 0) tile = claim_tile(workspace_);
    return __shfl_sync(device::all_lanes, tile, 0);
  }

  // The block of the coder with this lane's number.
  __device__ BatchTask find(uint32_t tile) const {
    BatchTask task{};
    const uint64_t number = uint64_t{tile} * coders_ + lane_;
    if (lane_ < static_cast<int>(coders_) && number < memory_.blocks.count()) {
      task.number = memory_.blocks.find(arguments_.layout, entries_, number, &task.block);
      const BatchEntry& entry = entries_[task.number];
      task.values = static_cast<const char*>(arguments_.values[task.number]);
      task.frame = static_cast<char*>(arguments_.frames[task.number]);
      task.elems = entry.elems;
      task.dtype = entry.dtype;
      task.is_raw = entry.is_raw;
      task.is_fixed = coding_of(arguments_.codec, entry.dtype, entry.is_raw).payload_bytes != 0;
    }
    return task;
  }
  __device__ void write(BatchClaim& to, uint32_t tile, const BatchTask& task) const {
    to.tasks[lane_] = task;
    if (lane_ == 0) to.tile = tile;
  }

  // Publishes the tile's word: the units of its last frame up to the end of the tile, with `placed`, or if that frame
  // began in an earlier tile, the units in this tile. Only frames with variable payloads have positions.
  __device__ void publish_tile(BatchTurn& stage, const BatchTask& task, uint32_t tile) const {
    const bool is_variable = task.values != nullptr && !task.is_fixed;
    const uint32_t units = is_variable ? stage.units[lane_] : 0;
    const uint32_t up_to = device::inclusive_scan(units);
    const uint32_t total = __shfl_sync(device::all_lanes, up_to, 31);
    // Lanes at which a frame begins, or which need no position. Lanes without a coder are among them.
    const uint32_t heads = __ballot_sync(device::all_lanes, !is_variable || task.block == 0);
    const uint32_t coder_heads = heads & (device::all_lanes >> (32 - coders_));
    const int last_head = coder_heads == 0 ? 0 : static_cast<int>(device::highest_bit(coder_heads));
    const uint32_t before_last_head = __shfl_sync(device::all_lanes, up_to - units, last_head);
    if (lane_ == 0) publish(workspace_, tile, coder_heads == 0 ? total : (total - before_last_head) | placed);
    const uint32_t own_heads = heads & (device::all_lanes >> (31 - lane_));
    const int head = own_heads == 0 ? 0 : static_cast<int>(device::highest_bit(own_heads));
    const uint32_t before_head = __shfl_sync(device::all_lanes, up_to - units, head);
    stage.units[lane_] = up_to - units - before_head;
    if (lane_ != 0) return;
    stage.continuing = coder_heads == 0 ? coders_ : __ffs(static_cast<int>(coder_heads)) - 1;
    stage.total = total;
  }

  const EncodeBatchArguments& arguments_;
  EncodeBatchMemory& memory_;
  const BatchEntry* entries_;
  Workspace* workspace_;
  uint32_t coders_;
  int lane_;
};

// A service warp: waits for the positions of frames that continue in a tile.
class BatchPlacer {
 public:
  __device__ BatchPlacer(const EncodeBatchArguments& arguments, EncodeBatchMemory& memory, uint32_t coders, int lane)
      : memory_(memory),
        workspace_(reinterpret_cast<Workspace*>(arguments.workspace + arguments.layout.tiles_offset())),
        coders_(coders),
        lane_(lane) {}

  __device__ void run(uint32_t tile_count) const {
    uint32_t tile = memory_.first_tile;
    for (uint32_t turn = 0; tile < tile_count; ++turn) {
      BatchTurn& stage = memory_.turn(turn);
      device::barrier_wait(&stage.counted, EncodeBatchMemory::parity(turn));
      const uint32_t continuing = stage.continuing;
      if (continuing != 0) {
        const uint32_t before = look_back(tile);
        if (continuing == coders_ && lane_ == 0) publish(workspace_, tile, (before + stage.total) | placed);
        if (lane_ < static_cast<int>(continuing)) stage.units[lane_] += before;
      }
      tile = stage.next_tile;
      device::barrier_arrive(&stage.placed);
    }
  }

 private:
  // The units of the frame that continues in `tile` in all tiles before it. The wait ends, however few CTAs run at
  // once: a tile is claimed from a counter by a CTA that is running, so every tile before this one has such a CTA.
  // Each CTA codes and places its tiles in the order in which it claimed them. So the first tile that is not placed
  // yet waits for no other.
  __device__ uint32_t look_back(uint32_t tile) const {
    uint32_t sum = 0;
    for (uint32_t end = tile;;) {
      const auto own = static_cast<uint32_t>(lane_);
      const uint32_t word = own < end ? published(workspace_, end - 1 - own) : placed;
      const uint32_t complete = __ballot_sync(device::all_lanes, (word & placed) != 0);
      const int last = complete == 0 ? 31 : __ffs(static_cast<int>(complete)) - 1;
      if (__any_sync(device::all_lanes, lane_ <= last && word == 0)) continue;
      sum += __reduce_add_sync(device::all_lanes, lane_ <= last ? word & ~placed : 0);
      if (complete != 0) return sum;
      end -= 32;
    }
  }

  EncodeBatchMemory& memory_;
  Workspace* workspace_;
  uint32_t coders_;
  int lane_;
};

}  // namespace narrowcast::codec::cuda
