// Frames of a tensor -> a range of its values. Payloads are fetched into shared memory by lines, as those of rows are
// (fetch_ring.cuh), so that the GPU can read host memory at nearly the speed of its link.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../codec/frame/cuda/header_check.cuh"
#include "../../device/ptx/async_copy.cuh"
#include "../../device/ptx/bulk_copy.cuh"
#include "../../device/ptx/stream_order.cuh"
#include "../../device/ptx/system_memory.cuh"
#include "../../device/warp.cuh"
#include "frame_read_arguments.h"
#include "row_output.cuh"

namespace narrowcast::store::cuda {

// A block of the tensor, and its payload.
struct alignas(16) BlockRead {
  uint64_t at;         // byte of the tensor
  uint16_t raw_bytes;  // of its values
  uint16_t in_line;    // of the payload's begin: bytes of its line before it
  uint32_t bytes;      // of the payload; 0: not valid
};

// The header of a frame. Its functions do not branch, so that all words are loaded at once.
class HeaderWords {
 public:
  __device__ explicit HeaderWords(const char* frame) {
#pragma unroll
    for (uint32_t i = 0; i < count; ++i) words_[i] = device::load_cached(reinterpret_cast<const uint32_t*>(frame) + i);
  }

  __device__ uint64_t wire_bytes() const { return words_[4] | uint64_t{words_[5]} << 32; }
  // Whether it has the expected values, and the frame is not longer than frame_bytes: codec::cuda::header_matches().
  __device__ bool matches(const format::FrameHeader& header, uint64_t frame_bytes) const {
    const auto* const expected = reinterpret_cast<const uint32_t*>(&header);
    const uint32_t flags = words_[1] >> 24;
    uint32_t different = (words_[1] ^ expected[1]) << 8 | (flags & ~uint32_t{NCAST_CHECKSUM | NCAST_MORE});
    different |= (flags & NCAST_CHECKSUM) != 0 ? 0 : words_[8] | words_[9];
#pragma unroll
    for (uint32_t i = 0; i < count; ++i)
      if (i != 1 && i != 4 && i != 5 && i != 8 && i != 9) different |= words_[i] ^ expected[i];
    return (different == 0) & (wire_bytes() <= frame_bytes) & (wire_bytes() % format::alignment == 0);
  }

 private:
  static constexpr uint32_t count = sizeof(format::FrameHeader) / sizeof(uint32_t);
  static_assert(offsetof(format::FrameHeader, flags) == 7 && offsetof(format::FrameHeader, wire_bytes) == 16 &&
                offsetof(format::FrameHeader, checksum) == 32);
  uint32_t words_[count];
};
static_assert(sizeof(HeaderWords) == sizeof(format::FrameHeader));

// The shared memory of a warp. Payloads follow, in FrameReadArguments::payload_room bytes.
template <typename Codec>
struct alignas(128) FrameReadMemory {
  char values[Codec::is_identity ? 128 : Codec::values_bytes];
  BlockRead reads[2];
  typename Codec::Scratch scratch;
};
// More warps would have too few registers.
template <typename Codec>
inline constexpr int max_read_warps = Codec::values_bytes > 4096 ? 12 : 20;

// Reads some of the blocks with a warp. Codec: a BlockCodec with payloads of any size (device/block_codec.cuh).
//
// Payloads are fetched with the rest of the lines that they begin and end in: the GPU requests parts of lines of host
// memory in several pieces. The payload of the next block is fetched while one is decoded. One's lines begin where the
// room for payloads does, the next one's end where it does, and so on in turns. The room is longer than a block, but
// not always as long as two payloads: lines where they would overlap are fetched when the first one has been decoded.
template <typename Codec>
class BlockReader {
  using Memory = FrameReadMemory<Codec>;

 public:
  // memory: of the warp.
  __device__ BlockReader(const FrameReadArguments& arguments, char* memory, int lane)
      : arguments_(arguments),
        memory_(*reinterpret_cast<Memory*>(memory)),
        payloads_(memory + sizeof(Memory)),
        lane_(static_cast<uint32_t>(lane)) {}

  // Reads every `step`-th of the blocks [begin, end) of the call. Kernels write nothing that is loaded, so only stores
  // wait for the stream's previous kernel (early_launch.cuh). The next one may start when the last fetches of this one
  // have begun.
  __device__ void run(uint32_t begin, uint32_t end, uint32_t step) {
    next_ = begin;
    end_ = end;
    step_ = step;
    advance();
    advance();
    uint32_t place = 0;
    for (uint32_t block = begin; block < end; block += step, place ^= 1) {
      device::wait_for_all_but(1);
      __syncwarp();
      const BlockRead read = memory_.reads[place];
      const char* const payload = lines_at(place, lines_of(read.in_line, read.bytes)) + read.in_line;
      const bool is_raw = Codec::is_identity || read.bytes == format::aligned(read.raw_bytes);
      bool ok = read.bytes != 0;
      if (ok && !is_raw) {
        device::wait_for_store_sources(lane_);  // of the previous block
        ok = Codec::decode(payload, read.bytes, memory_.values, memory_.scratch, lane_);
      } else if (ok) {
        device::wait_for_stream();
        store(read, payload);
        device::wait_for_store_sources(lane_);
      }
      __syncwarp();
      advance();
      device::wait_for_stream();
      if (next_ >= end_) device::start_next_kernel();
      if (ok && !is_raw) store(read, memory_.values);
      if (!ok && lane_ == 0) codec::cuda::report_corrupt(&arguments_.tensor.counts->status);
    }
    device::wait_for_store_sources(lane_);
    if (lane_ == 0 && payload_bytes_ != 0) atomicAdd(&arguments_.tensor.counts->payload_bytes, payload_bytes_);
  }

 private:
  static constexpr uint32_t block_bytes = Codec::values_bytes, unit = format::alignment, line = line_bytes;
  static_assert(block_bytes <= UINT16_MAX);

  // The bytes of the lines of a payload. in_line: of its first line, before it.
  __device__ static uint32_t lines_of(uint32_t in_line, uint32_t bytes) {
    return bytes == 0 ? 0 : (in_line + bytes + line - 1) / line * line;
  }
  // Where they are.
  __device__ char* lines_at(uint32_t place, uint32_t bytes) const {
    return payloads_ + (place == 0 ? 0 : arguments_.payload_room - bytes);
  }

  // A block has been decoded: fetches the rest of the payload of the next one, and starts to fetch that of the block
  // after it. Each is a group of copies. Empty ones count, too, so that run() need not count them.
  __device__ void advance() {
    if (overlap_ != 0) fetch(place_ == 0 ? bytes_ - overlap_ : 0, place_ == 0 ? bytes_ : overlap_);
    device::commit_copies();
    const uint32_t before = bytes_;
    bytes_ = overlap_ = 0;
    if (next_ < end_) {
      const uint32_t turn = turn_ % 32;
      if (turn == 0) find(next_ + lane_ * step_);
      next_ += step_;
      place_ = turn_++ % 2;
      from_ = static_cast<uint64_t>(
          __shfl_sync(device::all_lanes, static_cast<unsigned long long>(found_from_), static_cast<int>(turn)));
      const uint32_t payload_bytes = __shfl_sync(device::all_lanes, found_.bytes, static_cast<int>(turn));
      if (lane_ == turn) memory_.reads[place_] = found_;
      payload_bytes_ += payload_bytes;
      const auto in_line = static_cast<uint32_t>(from_ % line);
      from_ -= in_line;
      bytes_ = lines_of(in_line, payload_bytes);
      overlap_ = bytes_ + before > arguments_.payload_room ? bytes_ + before - arguments_.payload_room : 0;
      fetch(place_ == 0 ? 0 : overlap_, place_ == 0 ? bytes_ - overlap_ : bytes_);
    }
    device::commit_copies();
  }
  // Starts to fetch bytes [begin, end) of the lines that were started last.
  __device__ void fetch(uint32_t begin, uint32_t end) const {
    char* const to = lines_at(place_, bytes_);
#pragma unroll 2
    for (uint32_t offset = begin + lane_ * 16; offset < end; offset += 32 * 16)
      device::start_copy_of_16_bytes_by_line(to + offset, reinterpret_cast<const void*>(from_ + offset));
  }

  // Finds one of the warp's next 32 blocks in each lane.
  __device__ void find(uint32_t number) {
    found_ = {};
    if (number >= end_) return;
    const TensorFrames& tensor = arguments_.tensor;
    const uint64_t of_all = arguments_.first_block + number, frame = of_all / tensor.frame_blocks;
    const auto block = static_cast<uint32_t>(of_all % tensor.frame_blocks);
    const uint64_t frame_at = frame * tensor.frame_bytes;
    found_.at = frame_at + uint64_t{block} * block_bytes;
    const uint64_t frame_end = min(frame_at + tensor.frame_bytes, tensor.tensor_bytes);
    found_.raw_bytes = static_cast<uint16_t>(min(uint64_t{block_bytes}, frame_end - found_.at));
    const format::FrameHeader& expected = tensor.headers[frame + 1 == tensor.count ? 1 : 0];
    const uint64_t begin = tensor.offsets[frame], end = tensor.offsets[frame + 1];
    if (end < begin || end - begin < expected.wire_bytes || begin % unit != 0) return;
    const FrameSource& source = arguments_.read.from;
    const char* const data = source.headers + begin;
    // Everything is loaded before anything is decided, because a load from host memory takes more than a microsecond.
    const HeaderWords header(data);
    const uint32_t stored = static_cast<uint32_t>(format::aligned(found_.raw_bytes)) / unit;
    uint32_t first = block * (block_bytes / unit), last = first + stored;
    uint64_t payloads = begin;
    bool ok = true;
    if constexpr (Codec::is_identity) {
      ok = header.wire_bytes() == expected.wire_bytes;
      payloads += sizeof header;
    } else {
      const auto* const ends = reinterpret_cast<const uint32_t*>(data + sizeof header);
      last = device::load_cached(ends + block);
      first = block == 0 ? 0 : device::load_cached(ends + block - 1);
      const uint64_t units = (header.wire_bytes() - expected.wire_bytes) / unit;
      const bool is_last = block + 1 == expected.blocks, is_whole = found_.raw_bytes == block_bytes;
      ok = (header.wire_bytes() >= expected.wire_bytes) & (last > first) & (last - first <= stored) & (last <= units) &
           (!is_last | (last == units)) & (is_whole | (last - first == stored));
      payloads += expected.wire_bytes;
    }
    const uint64_t from = payloads + uint64_t{first} * unit, to = payloads + uint64_t{last} * unit;
    ok = ok & header.matches(expected, end - begin) & (from >= source.payload_begin) & (to <= source.payload_end);
    found_from_ = reinterpret_cast<uintptr_t>(source.payloads) + from;
    found_.in_line = static_cast<uint16_t>(found_from_ % line);
    found_.bytes = ok ? (last - first) * unit : 0;
  }

  // Stores the part of a block's values that is asked for.
  __device__ void store(const BlockRead& block, const char* values) const {
    const FrameRead& read = arguments_.read;
    const uint64_t begin = max(block.at, read.begin), end = min(block.at + block.raw_bytes, read.end);
    const char* const from = values + (begin - block.at);
    char* const to = read.out + (begin - read.begin);
    const auto bytes = static_cast<uint32_t>(end - begin);
    const auto bits =
        static_cast<uint32_t>(reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) | bytes;
    if (bits % unit == 0) {
      device::bulk_store(to, from, bytes, static_cast<int>(lane_));
      return;
    }
    __syncwarp();
    copy_row(Tile(32, static_cast<int>(lane_)), to, from, bytes, bits & -bits);
    __syncwarp();
  }

  const FrameReadArguments& arguments_;
  Memory& memory_;
  char* payloads_;
  uint32_t lane_;
  uint32_t next_ = 0, end_ = 0, step_ = 0, turn_ = 0;  // of the fetches
  BlockRead found_ = {};                               // by this lane
  uint64_t found_from_ = 0;                            // where its payload is
  // The lines of the payload that was started last. overlap_: bytes that are not fetched yet.
  uint64_t from_ = 0;
  uint32_t bytes_ = 0, overlap_ = 0, place_ = 0;
  unsigned long long payload_bytes_ = 0;
};

// Each CTA reads as many blocks, which follow each other. Its warps take them in turns: payloads begin and end inside
// lines, and two warps that want the same line at about the same time request it once, through the L1 cache.
template <typename Codec>
__device__ void read_frames(const FrameReadArguments& arguments, char* shared_memory) {
  const uint32_t warps = blockDim.x / 32, warp = device::warp_id();
  const uint64_t count = arguments.block_count;
  const auto first_of = [&](uint32_t cta) { return static_cast<uint32_t>(count * cta / gridDim.x); };
  char* const memory = shared_memory + warp * (sizeof(FrameReadMemory<Codec>) + arguments.payload_room);
  BlockReader<Codec>(arguments, memory, device::lane_id())
      .run(first_of(blockIdx.x) + warp, first_of(blockIdx.x + 1), warps);
}

}  // namespace narrowcast::store::cuda
