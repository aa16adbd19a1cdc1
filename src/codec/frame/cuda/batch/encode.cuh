// The second kernel that encodes a batch. The coders, all warps of a CTA except two, code a tile of blocks with
// neighbouring numbers, which may belong to many frames. The publisher, a service warp, publishes the size of the
// payloads as soon as they are coded, and claims tiles. The placer, the other one, determines where the payloads
// begin in their frames: a tile in which a frame begins needs no other tile for that, and the others look back to the
// tiles before them (decoupled look-back, Merrill and Garland 2016). Payloads wait for their positions in shared
// memory, while the coders code the next tiles.
#pragma once

#include <cstring>

#include "codec/frame/cuda/batch/encode_services.cuh"
#include "codec/frame/cuda/batch/encode_tiles.cuh"
#include "codec/frame/cuda/frame_output.cuh"
#include "device/ptx/barrier.cuh"

namespace narrowcast::codec::cuda {

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
      return device::encode_block<Codec>(
          device::parameters_of<Codec>(arguments_.codec.codec), device::context_in_frame<Codec>(block.task.block),
          memory_.buffer(here), memory_.buffer(out), memory_.template scratch<typename Codec::Scratch>(), lane_);
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
