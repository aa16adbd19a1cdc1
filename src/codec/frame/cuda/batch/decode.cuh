// The second kernel that decodes a batch. The warps of the grid take turns over all blocks, as in decode_blocks.cuh.
#pragma once

#include "codec/frame/cuda/batch/blocks.cuh"
#include "codec/frame/cuda/header_check.cuh"

namespace narrowcast::codec::cuda {

struct alignas(128) DecodeBatchMemory {
  BatchBlocks blocks;
};

// A block of a batch: where its payload is, and where its values belong.
struct BatchPayload {
  const char* payload;
  char* values;
  uint32_t bytes;      // of the payload; 0: not valid
  uint32_t raw_bytes;  // of the values; 0: there is no such block
  uint32_t number;     // of the frame
  uint32_t coding;     // the value type; `raw_payload` if the frame is raw

  static constexpr uint32_t raw_payload = 0xff;
};

template <typename Family>
class BatchDecoder {
 public:
  using Memory = BatchWarpMemory<Family, 2>;

  __device__ BatchDecoder(const DecodeBatchArguments& arguments, const BatchBlocks& blocks, const Memory& memory,
                          uint32_t warps, int lane)
      : arguments_(arguments),
        blocks_(blocks),
        entries_(reinterpret_cast<const BatchEntry*>(arguments.workspace + arguments.layout.entries_offset())),
        memory_(memory),
        load_(memory.barrier(), lane),
        warps_(uint64_t{gridDim.x} * warps),
        lane_(lane) {}

  // Decodes block `first` and every warps-th after it.
  __device__ void run(uint64_t first) {
    next_ = first;
    char *here = memory_.buffer(0), *other = memory_.buffer(1);  // the buffers of the payload and of the values
    BatchPayload block = start_load(here);
    while (block.raw_bytes != 0) {
      const uint32_t block_bytes = whole_bytes(block);
      const bool is_whole = block.raw_bytes == block_bytes;
      if (is_whole && block.bytes != 0) load_.wait();
      device::wait_for_store_sources(lane_);  // of the previous block
      char* values = other;
      bool decoded = block.bytes != 0;
      if (is_whole && block.bytes == block_bytes) {  // raw: stored from the payload's buffer
        values = here;
        here = other;
        other = values;
        device::order_stores_before_bulk_copies();
      } else if (is_whole && decoded) {
        decoded = decode(block, here, other);
      }
      const BatchPayload following = start_load(here);
      if (!decoded) {
        reject(block.number);
      } else if (is_whole) {
        store(block, values, block_bytes);
      } else {
        copy_short_block(block.values, block.payload, block.raw_bytes, lane_);
      }
      block = following;
    }
    device::wait_for_store_sources(lane_);
  }

 private:
  __device__ TypeCoding coding(const BatchPayload& block) const {
    if (block.coding == BatchPayload::raw_payload) return raw_coding();
    return arguments_.codec.types[block.coding];
  }
  __device__ uint32_t whole_bytes(const BatchPayload& block) const { return coding(block).block_bytes; }

  // Finds the payload of a block. Called by single threads.
  __device__ BatchPayload find(uint64_t number) const {
    BatchPayload found{};
    if (number >= blocks_.count()) return found;
    uint32_t block = 0;
    found.number = blocks_.find(arguments_.layout, entries_, number, &block);
    const BatchEntry entry = entries_[found.number];
    found.coding = entry.is_raw ? BatchPayload::raw_payload : entry.dtype;
    const TypeCoding coded = coding(found);
    const uint32_t value_bytes = device::value_bytes_of(static_cast<ncast_dtype>(entry.dtype));
    const uint64_t before = uint64_t{block} * coded.block_bytes;
    const uint64_t left = entry.elems * value_bytes - before;
    found.raw_bytes = static_cast<uint32_t>(min(left, uint64_t{coded.block_bytes}));
    found.values = static_cast<char*>(arguments_.values[found.number]) + before;
    const auto* const frame = static_cast<const char*>(arguments_.frames[found.number]);
    const auto stored = static_cast<uint32_t>(format::aligned(found.raw_bytes));
    const bool is_whole = found.raw_bytes == coded.block_bytes;
    if (coded.payload_bytes != 0) {
      found.payload = frame + sizeof(format::FrameHeader) + uint64_t{block} * coded.payload_bytes;
      found.bytes = is_whole ? coded.payload_bytes : stored;
      return found;
    }
    const format::FrameLayout layout = format::frame_layout(entry.elems, coded.block_bytes / value_bytes);
    const auto* const ends = reinterpret_cast<const uint32_t*>(frame + sizeof(format::FrameHeader));
    const uint32_t begin = block == 0 ? 0 : ends[block - 1], end = ends[block];
    const bool is_last = block + 1 == layout.blocks;
    // The units of a payload are at most those of the values. A short block is stored raw.
    const uint32_t most = stored / format::alignment;
    const bool is_valid = end > begin && end - begin <= most && end <= entry.units &&
                          (!is_last || end == entry.units) && (is_whole || end - begin == most);
    found.payload = frame + layout.payload_offset + uint64_t{begin} * format::alignment;
    found.bytes = is_valid ? (end - begin) * static_cast<uint32_t>(format::alignment) : 0;
    return found;
  }

  // Returns the warp's next block, and starts to load its payload. Each lane finds one of 32 blocks.
  __device__ BatchPayload start_load(char* to) {
    if (turn_ % 32 == 0) found_ = find(next_ + lane_ * warps_);
    const int lane = static_cast<int>(turn_ % 32);
    BatchPayload block;
    block.payload = reinterpret_cast<const char*>(
        __shfl_sync(device::all_lanes, static_cast<uint64_t>(reinterpret_cast<uintptr_t>(found_.payload)), lane));
    block.values = reinterpret_cast<char*>(
        __shfl_sync(device::all_lanes, static_cast<uint64_t>(reinterpret_cast<uintptr_t>(found_.values)), lane));
    block.bytes = __shfl_sync(device::all_lanes, found_.bytes, lane);
    block.raw_bytes = __shfl_sync(device::all_lanes, found_.raw_bytes, lane);
    block.number = __shfl_sync(device::all_lanes, found_.number, lane);
    block.coding = __shfl_sync(device::all_lanes, found_.coding, lane);
    if (++turn_ % 32 == 0) next_ += 32 * warps_;
    if (block.bytes != 0 && block.raw_bytes == whole_bytes(block)) load_.load(to, block.payload, block.bytes, lane_);
    return block;
  }

  __device__ bool decode(const BatchPayload& block, const char* payload, char* values) {
    if (block.coding == BatchPayload::raw_payload) return false;
    return Family::visit(block.coding, false, [&]<typename Codec>() {
      return device::decode_block<Codec>(device::parameters_of<Codec>(arguments_.codec.codec), payload, block.bytes,
                                         values, memory_.template scratch<typename Codec::Scratch>(), lane_);
    });
  }

  __device__ void store(const BatchPayload& block, const char* values, uint32_t block_bytes) const {
    if (is_aligned(block.values)) {
      device::bulk_store(block.values, values, block_bytes, lane_);
      return;
    }
    // The values are aligned to their type: at least to the lowest bit that is set in their address.
    const uint64_t address = reinterpret_cast<uintptr_t>(block.values);
    const auto alignment = static_cast<uint32_t>(address & (0 - address) & 15);
    __syncwarp();
    copy_values(block.values, values, block_bytes, alignment, lane_);
    __syncwarp();
  }

  __device__ void reject(uint32_t number) const {
    if (lane_ != 0) return;
    report_corrupt(&arguments_.statuses[number]);
    arguments_.value_bytes[number] = 0;
  }

  const DecodeBatchArguments& arguments_;
  const BatchBlocks& blocks_;
  const BatchEntry* entries_;
  Memory memory_;
  device::LoadBarrier load_;
  uint64_t warps_;  // of the grid
  uint64_t next_ = 0;
  uint32_t turn_ = 0;
  BatchPayload found_{};
  int lane_;
};

// shared: arguments.shared_bytes bytes, aligned to 128 bytes.
template <typename Family>
__device__ void decode_batch(const DecodeBatchArguments& arguments, char* shared) {
  using Memory = typename BatchDecoder<Family>::Memory;
  const int lane = device::lane_id();
  const uint32_t warp = device::warp_id();
  auto& cta = *reinterpret_cast<DecodeBatchMemory*>(shared);
  if (warp == 0) cta.blocks.load(arguments.layout, arguments.workspace, lane);
  __syncthreads();
  const uint64_t blocks = cta.blocks.count();
  if (blocks == 0) return;
  const uint32_t warp_bytes = Memory::bytes(cta.blocks.block_bytes);
  const uint32_t most = min((arguments.shared_bytes - static_cast<uint32_t>(sizeof cta)) / warp_bytes, blockDim.x / 32);
  const auto warps = static_cast<uint32_t>(min(uint64_t{most}, (blocks + gridDim.x - 1) / gridDim.x));
  if (warp >= warps) return;
  const Memory memory{shared + sizeof cta + warp * warp_bytes, cta.blocks.block_bytes};
  BatchDecoder<Family>(arguments, cta.blocks, memory, warps, lane).run(uint64_t{blockIdx.x} * warps + warp);
}

}  // namespace narrowcast::codec::cuda
