// The second kernel that encodes a batch. The coders, all warps of a CTA except one, code a tile of blocks with
// neighbouring numbers, which may belong to many frames. The last warp, the placer, determines where the payloads begin
// in their frames: a tile in which a frame begins needs no other tile for that, and the others look back to the tiles
// before them (decoupled look-back, Merrill and Garland 2016). Payloads wait for one turn, during which the coders code
// the next tile.
#pragma once

#include <cstring>

#include "codec/frame/cuda/batch/blocks.cuh"
#include "codec/frame/cuda/frame_output.cuh"
#include "codec/frame/cuda/tiles.cuh"
#include "device/ptx/barrier.cuh"

namespace narrowcast::codec::cuda {

// The buffers of a coder: for values, for the payload that is being encoded, and for the one that waits.
inline constexpr int batch_encode_buffers = 3;
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

// Shared by the warps of a CTA for every other turn.
struct BatchTurn {
  BatchTask tasks[32];  // by coder
  uint32_t tile;
  uint32_t units[32];  // by coder: the size of the payload; after `placed`, where it begins in the frame
  uint64_t coded;      // barrier: all coders have written their units
  uint64_t placed;     // barrier: the placer has replaced the units, and has written tile and tasks of two turns later
};
struct alignas(128) EncodeBatchMemory {
  BatchBlocks blocks;
  BatchTurn turns[2];
  uint64_t second;  // barrier: the placer has written tile and tasks of the second turn

  __device__ BatchTurn& turn(uint32_t number) { return turns[number % 2]; }
  __device__ static uint32_t parity(uint32_t turn) { return turn / 2 % 2; }
};

// The number of coders of each CTA: the minimum for the minimum number of turns.
__device__ inline uint32_t batch_coders(uint64_t blocks, uint32_t most) {
  const uint64_t of_cta = (blocks + gridDim.x - 1) / gridDim.x;
  const uint64_t turns = (of_cta + most - 1) / most;
  if (turns == 0) return min_batch_coders;
  return max(static_cast<uint32_t>((of_cta + turns - 1) / turns), min_batch_coders);
}

class BatchPlacer {
 public:
  __device__ BatchPlacer(const EncodeBatchArguments& arguments, EncodeBatchMemory& memory, uint32_t coders, int lane)
      : arguments_(arguments),
        memory_(memory),
        entries_(reinterpret_cast<const BatchEntry*>(arguments.workspace + arguments.layout.entries_offset())),
        workspace_(reinterpret_cast<Workspace*>(arguments.workspace + arguments.layout.tiles_offset())),
        coders_(coders),
        lane_(lane) {}

  // Claims the first tile. Called before a __syncthreads().
  __device__ void begin() {
    const uint32_t tile = claim();
    write(memory_.turns[0], tile, find(tile));
  }

  __device__ void run(uint32_t tile_count) {
    uint32_t tile = memory_.turns[0].tile;
    if (tile >= tile_count) return;
    // Tiles that are coded at the same time should be neighbours. This does not wait for CTAs that cannot start.
    if (lane_ == 0) wait_for_first_tiles(workspace_);
    __syncwarp();
    uint32_t next = claim();
    write(memory_.turns[1], next, find(next));
    device::barrier_arrive(&memory_.second);
    for (uint32_t turn = 0; tile < tile_count; ++turn) {
      BatchTurn& stage = memory_.turn(turn);
      const uint32_t claimed = claim();
      const BatchTask claimed_task = find(claimed);
      device::barrier_wait(&stage.coded, EncodeBatchMemory::parity(turn));
      place(stage, tile);
      write(stage, claimed, claimed_task);
      device::barrier_arrive(&stage.placed);
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
  __device__ void write(BatchTurn& stage, uint32_t tile, const BatchTask& task) const {
    stage.tasks[lane_] = task;
    if (lane_ == 0) stage.tile = tile;
  }

  // Replaces the units of the tile's payloads by their positions, and publishes the tile's word: the units of its last
  // frame up to the end of the tile, with `placed`, or if that frame began in an earlier tile, at first the units in
  // this tile. Only frames with variable payloads need this.
  __device__ void place(BatchTurn& stage, uint32_t tile) const {
    const BatchTask& task = stage.tasks[lane_];
    const bool is_variable = task.values != nullptr && !task.is_fixed;
    const uint32_t units = is_variable ? stage.units[lane_] : 0;
    const uint32_t up_to = device::inclusive_scan(units);
    const uint32_t total = __shfl_sync(device::all_lanes, up_to, 31);
    // Lanes at which a frame begins, or which need no position.
    const uint32_t heads = __ballot_sync(device::all_lanes, !is_variable || task.block == 0);
    const uint32_t own_heads = heads & (device::all_lanes >> (31 - lane_));
    const int head = own_heads == 0 ? 0 : static_cast<int>(device::highest_bit(own_heads));
    const uint32_t before_head = __shfl_sync(device::all_lanes, up_to - units, head);
    // Lanes without a coder are heads too: only those below count.
    const uint32_t coder_heads = heads & (device::all_lanes >> (32 - coders_));
    const int last_head = coder_heads == 0 ? 0 : static_cast<int>(device::highest_bit(coder_heads));
    const uint32_t before_last_head = __shfl_sync(device::all_lanes, up_to - units, last_head);
    if (coder_heads != 0) {
      if (lane_ == 0) publish(workspace_, tile, (total - before_last_head) | placed);
    } else {
      if (lane_ == 0) publish(workspace_, tile, total);
    }
    uint32_t carry = 0;
    if ((heads & 1) == 0) carry = look_back(tile);  // the first block continues a frame
    if (coder_heads == 0 && lane_ == 0) publish(workspace_, tile, (carry + total) | placed);
    stage.units[lane_] = up_to - units - before_head + (own_heads == 0 ? carry : 0);
  }

  // The units of the frame that continues in `tile` in all tiles before it. The wait ends, however few CTAs run at
  // once: a tile is claimed from a counter by a CTA that is running, so every tile before this one has such a CTA. Each
  // CTA places its tiles in the order in which it claimed them. So the first tile that is not placed yet waits for no
  // other.
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

  const EncodeBatchArguments& arguments_;
  EncodeBatchMemory& memory_;
  const BatchEntry* entries_;
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
    uint32_t tile = from_lane_0(cta_.turns[0].tile);
    Block block = block_of(cta_.turns[0]), waiting{};
    uint32_t here = 0, out = 1, waits = 2;  // buffers: of the values, for the payload, of the payload that waits
    start_load(block, here);
    uint32_t turn = 0;
    for (; tile < tile_count; ++turn) {
      BatchTurn& stage = cta_.turn(turn);
      device::wait_for_store_sources(lane_);  // the payload of two turns ago was in `out`
      uint32_t made = out;
      if (block.is_whole()) {
        if (block.is_aligned) {
          load_.wait();
        } else {
          __syncwarp();
        }
        block.bytes = encode(block, here, out);
        if (block.bytes == block.block_bytes) {  // raw: the values are stored from where they are
          made = here;
          here = out;
          device::order_stores_before_bulk_copies();
        }
      } else if (block.exists()) {
        block.bytes = static_cast<uint32_t>(format::aligned(block.raw_bytes));
      }
      if (lane_ == 0) {
        stage.units[coder_] = block.bytes / format::alignment;
        device::barrier_arrive(&stage.coded);
      }
      if (turn == 0) {
        device::barrier_wait(&cta_.second, 0);
      } else {
        store_placed(waiting, waits, turn - 1);
      }
      const BatchTurn& following = cta_.turn(turn + 1);
      tile = from_lane_0(following.tile);
      out = waits;
      waits = made;
      waiting = block;
      block = block_of(following);
      start_load(block, here);
    }
    if (turn != 0) store_placed(waiting, waits, turn - 1);
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

  // Reads shared memory with lane 0 only: it is the one that arrives at the barrier after which the placer overwrites
  // the turn.
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

  __device__ Block block_of(const BatchTurn& turn) const {
    Block block{};
    block.task = from_lane_0(turn.tasks[coder_]);
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
  __device__ void store_placed(const Block& block, uint32_t buffer, uint32_t turn) {
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
      device::bulk_store(to, memory_.buffer(buffer), block.bytes, lane_);
    } else {
      copy_bytes(to, block.values(), block.raw_bytes, lane_);
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

// shared: arguments.shared_bytes bytes, aligned to 128 bytes. Called by CTAs of max_batch_coders + 1 warps, or fewer.
template <typename Family>
__device__ void encode_batch(const EncodeBatchArguments& arguments, char* shared) {
  using Memory = typename BatchCoder<Family>::Memory;
  const int lane = device::lane_id();
  const uint32_t warp = device::warp_id(), placer = blockDim.x / 32 - 1;
  auto& cta = *reinterpret_cast<EncodeBatchMemory*>(shared);
  if (warp == 0) cta.blocks.load(arguments.layout, arguments.workspace, lane);
  __syncthreads();
  const uint64_t blocks = cta.blocks.count();
  if (blocks == 0) return;
  const uint32_t warp_bytes = Memory::bytes(cta.blocks.block_bytes);
  const uint32_t most = min((arguments.shared_bytes - static_cast<uint32_t>(sizeof cta)) / warp_bytes, placer);
  const uint32_t coders = batch_coders(blocks, most);
  const uint64_t tile_count = (blocks + coders - 1) / coders;
  if (tile_count > arguments.layout.max_tiles) return reject_batch(arguments);

  BatchPlacer placing(arguments, cta, coders, lane);
  if (warp == placer) placing.begin();
  if (threadIdx.x == 0) {
    for (BatchTurn& turn : cta.turns) {
      device::barrier_init(&turn.coded, coders);
      device::barrier_init(&turn.placed, 32);
    }
    device::barrier_init(&cta.second, 32);
  }
  __syncthreads();
  if (warp == placer) {
    placing.run(static_cast<uint32_t>(tile_count));
  } else if (warp < coders) {
    const Memory memory{shared + sizeof cta + warp * warp_bytes, cta.blocks.block_bytes};
    BatchCoder<Family>(arguments, cta, memory, warp, lane).run(static_cast<uint32_t>(tile_count));
  }
}

}  // namespace narrowcast::codec::cuda
