// The second kernel that encodes a batch. The coders, all warps of a CTA except two, code a tile of blocks with
// neighbouring numbers, which may belong to many frames. The publisher, a service warp, publishes the size of the
// payloads as soon as they are coded, and claims tiles. The placer, the other one, determines where the payloads
// begin in their frames: a tile in which a frame begins needs no other tile for that, and the others look back to the
// tiles before them (decoupled look-back, Merrill and Garland 2016). Payloads wait for their positions in shared
// memory, while the coders code the next tiles.
#pragma once

#include <cstring>

#include "codec/frame/cuda/batch/blocks.cuh"
#include "codec/frame/cuda/frame_output.cuh"
#include "codec/frame/cuda/tiles.cuh"
#include "device/ptx/barrier.cuh"

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

template <typename Family>
class BatchCoder {
 public:
  using Memory = BatchWarpMemory<Family, batch_encode_buffers>;

  __device__ BatchCoder(const EncodeBatchArguments& arguments, EncodeBatchMemory& cta, const Memory& memory,
                        uint32_t coder, int lane)
      : arguments_(arguments), cta_(cta), memory_(memory), load_(memory.barrier(), lane), coder_(coder), lane_(lane) {}

  __device__ void run(uint32_t tile_count) {
    uint32_t tile = from_lane_0(cta_.claims[0].tile);
    Block block = block_of(cta_.claims[0]);
    Waiting waiting[batch_waiting_turns] = {};  // the oldest payload first
#pragma unroll
    for (uint32_t i = 0; i < batch_waiting_turns; ++i) waiting[i].buffer = 2 + i;
    uint32_t here = 0, out = 1;  // buffers: of the values, for the payload
    start_load(block, here);
    uint32_t turn = 0;
    for (; tile < tile_count; ++turn) {
      BatchTurn& stage = cta_.turn(turn);
      uint32_t made = out;
      if (block.is_whole()) {
        if (block.is_aligned) {
          load_.wait();
        } else {
          __syncwarp();
        }
        device::wait_for_store_sources(lane_);  // the last payload that was stored was in `out`
        block.bytes = encode(block, here, out);
        if (block.bytes == block.block_bytes) {  // raw: the values are stored from where they are
          made = here;
          here = out;
          device::order_stores_before_bulk_copies();
        }
      } else if (block.exists()) {
        block.bytes = static_cast<uint32_t>(format::aligned(block.raw_bytes));
      }
      __syncwarp();  // all lanes have read the units of the last payload that was stored
      if (lane_ == 0) {
        stage.units[coder_] = block.bytes / format::alignment;
        device::barrier_arrive(&stage.coded);
      }
      if (turn == 0) {
        device::barrier_wait(&cta_.second, 0);
      } else {
        device::barrier_wait(&cta_.turn(turn - 1).counted, EncodeBatchMemory::parity(turn - 1));
      }
      const BatchClaim& following = cta_.claim(turn + 1);
      tile = from_lane_0(following.tile);
      const Block next = block_of(following);
      start_load(next, here);
      if (turn >= batch_waiting_turns) store_placed(waiting[0], turn - batch_waiting_turns);
      out = waiting[0].buffer;
#pragma unroll
      for (uint32_t i = 1; i < batch_waiting_turns; ++i) waiting[i - 1] = waiting[i];
      waiting[batch_waiting_turns - 1] = {block, made};
      block = next;
    }
#pragma unroll
    for (uint32_t i = 0; i < batch_waiting_turns; ++i)
      if (turn + i >= batch_waiting_turns) store_placed(waiting[i], turn + i - batch_waiting_turns);
    device::wait_for_store_sources(lane_);
  }

 private:
  // A task, and what follows from it.
  struct Block {
    BatchTask task;
    uint32_t block_bytes, value_bytes;
    uint32_t raw_bytes;  // 0: the coder has no block
    uint32_t bytes;      // of the payload
    bool is_aligned;

    __device__ bool exists() const { return raw_bytes != 0; }
    __device__ bool is_whole() const { return exists() && raw_bytes == block_bytes; }
    __device__ const char* values() const { return task.values + uint64_t{task.block} * block_bytes; }
  };
  // A payload that waits for its position.
  struct Waiting {
    Block block;
    uint32_t buffer;
  };

  // Reads a claim with lane 0 only: it is the one that arrives at the barrier after which the publisher overwrites it.
  template <typename T>
  __device__ T from_lane_0(const T& shared) const {
    T value{};
    if (lane_ == 0) value = shared;
    uint32_t words[sizeof value / sizeof(uint32_t)];
    std::memcpy(words, &value, sizeof words);
#pragma unroll
    for (uint32_t& word : words) word = __shfl_sync(device::all_lanes, word, 0);
    std::memcpy(&value, words, sizeof words);
    return value;
  }

  __device__ Block block_of(const BatchClaim& claim) const {
    Block block{};
    block.task = from_lane_0(claim.tasks[coder_]);
    const BatchTask& task = block.task;
    if (task.values == nullptr) return block;
    block.block_bytes = coding_of(arguments_.codec, task.dtype, task.is_raw).block_bytes;
    block.value_bytes = device::value_bytes_of(static_cast<ncast_dtype>(task.dtype));
    const uint64_t left = task.elems * block.value_bytes - uint64_t{task.block} * block.block_bytes;
    block.raw_bytes = static_cast<uint32_t>(min(left, uint64_t{block.block_bytes}));
    block.is_aligned = is_aligned(task.values);
    return block;
  }

  __device__ void start_load(const Block& block, uint32_t buffer) {
    if (!block.is_whole()) return;
    if (block.is_aligned) {
      load_.load(memory_.buffer(buffer), block.values(), block.block_bytes, lane_);
    } else {
      __syncwarp();
      copy_values(memory_.buffer(buffer), block.values(), block.block_bytes, block.value_bytes, lane_);
      device::order_stores_before_bulk_copies();  // the next block in this buffer may be aligned
    }
  }

  __device__ uint32_t encode(const Block& block, uint32_t here, uint32_t out) {
    if (block.task.is_raw) return block.block_bytes;
    return Family::visit(block.task.dtype, block.block_bytes, [&]<typename Codec>() {
      return device::encode_block<Codec>(arguments_.codec.codec, memory_.buffer(here), memory_.buffer(out),
                                         memory_.template scratch<typename Codec::Scratch>(), lane_);
    });
  }

  // Waits until the position of the payload that was encoded in `turn` is known, and stores it.
  __device__ void store_placed(const Waiting& waiting, uint32_t turn) {
    const Block& block = waiting.block;
    BatchTurn& stage = cta_.turn(turn);
    device::barrier_wait(&stage.placed, EncodeBatchMemory::parity(turn));
    if (!block.exists()) return;
    const BatchTask& task = block.task;
    const format::FrameHeader header =
        batch_header(arguments_.codec, task.dtype, task.is_raw, task.elems, arguments_.flags);
    const uint32_t begin = stage.units[coder_];
    const FrameWriter writer{task.frame, header, header.wire_bytes};
    char* to = writer.payload_at(begin);
    if (task.is_fixed)
      to = task.frame + sizeof header +
           uint64_t{task.block} * coding_of(arguments_.codec, task.dtype, task.is_raw).payload_bytes;
    if (block.is_whole()) {
      device::bulk_store(to, memory_.buffer(waiting.buffer), block.bytes, lane_);
    } else {
      copy_short_block(to, block.values(), block.raw_bytes, lane_);
      if (block.raw_bytes + lane_ < block.bytes) to[block.raw_bytes + lane_] = 0;
    }
    if (task.is_fixed) return;
    const uint32_t end = begin + block.bytes / format::alignment;
    writer.write_end(task.block, end, lane_);
    if (task.block + 1 == header.blocks && lane_ == 0)
      arguments_.wire_bytes[task.number] = header.wire_bytes + uint64_t{end} * format::alignment;
  }

  const EncodeBatchArguments& arguments_;
  EncodeBatchMemory& cta_;
  Memory memory_;
  device::LoadBarrier load_;
  uint32_t coder_;
  int lane_;
};

// Reports that the workspace is too small for the values, in all frames without another error.
__device__ inline void reject_batch(const EncodeBatchArguments& arguments) {
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < arguments.layout.count; i += gridDim.x * blockDim.x) {
    if (arguments.statuses[i] == NCAST_OK) arguments.statuses[i] = NCAST_TOO_SMALL;
    arguments.wire_bytes[i] = 0;
  }
}

// shared: arguments.shared_bytes bytes, aligned to 128 bytes. Called by CTAs of up to max_batch_coders +
// batch_service_warps warps.
template <typename Family>
__device__ void encode_batch(const EncodeBatchArguments& arguments, char* shared) {
  using Memory = typename BatchCoder<Family>::Memory;
  const int lane = device::lane_id();
  const uint32_t warp = device::warp_id(), most_coders = blockDim.x / 32 - batch_service_warps;
  auto& cta = *reinterpret_cast<EncodeBatchMemory*>(shared);
  if (warp == 0) cta.blocks.load(arguments.layout, arguments.workspace, lane);
  __syncthreads();
  const uint64_t blocks = cta.blocks.count();
  if (blocks == 0) return;
  const uint32_t warp_bytes = Memory::bytes(cta.blocks.block_bytes);
  const uint32_t most = min((arguments.shared_bytes - static_cast<uint32_t>(sizeof cta)) / warp_bytes, most_coders);
  const uint32_t coders = batch_coders(blocks, most);
  const uint64_t tile_count = (blocks + coders - 1) / coders;
  if (tile_count > arguments.layout.max_tiles) return reject_batch(arguments);

  BatchPublisher publisher(arguments, cta, coders, lane);
  if (warp == most_coders) publisher.begin();
  if (threadIdx.x == 0) {
    for (BatchTurn& turn : cta.turns) {
      device::barrier_init(&turn.coded, coders);
      device::barrier_init(&turn.counted, 32);
      device::barrier_init(&turn.placed, 32);
    }
    device::barrier_init(&cta.second, 32);
  }
  __syncthreads();
  if (warp == most_coders) {
    publisher.run(static_cast<uint32_t>(tile_count));
  } else if (warp > most_coders) {
    BatchPlacer(arguments, cta, coders, lane).run(static_cast<uint32_t>(tile_count));
  } else if (warp < coders) {
    const Memory memory{shared + sizeof cta + warp * warp_bytes, cta.blocks.block_bytes};
    BatchCoder<Family>(arguments, cta, memory, warp, lane).run(static_cast<uint32_t>(tile_count));
  }
}

}  // namespace narrowcast::codec::cuda
