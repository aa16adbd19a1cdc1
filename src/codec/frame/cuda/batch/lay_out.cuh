// The first kernel of a batch: checks the arguments of every frame, counts its blocks, and writes what is known of the
// results. One CTA lays out a chunk of frames. The second kernel adds up the chunks itself, so CTAs need not wait for
// each other.
#pragma once

#include "codec/frame/cuda/batch/arguments.h"
#include "codec/frame/cuda/header_check.cuh"
#include "codec/frame/cuda/warps.cuh"

namespace narrowcast::codec::cuda {

inline constexpr uint32_t lay_out_warps = batch_chunk_step / 32;

// Shared by the warps of a CTA.
struct LayOutMemory {
  uint32_t blocks[lay_out_warps];       // of the frames of each warp
  uint32_t block_bytes[lay_out_warps];  // the largest of each warp
};

// What a thread finds out about its frame.
struct BatchFrame {
  uint32_t blocks;
  uint32_t block_bytes;
  BatchEntry entry;  // without `begin`
};

__device__ inline bool is_aligned_to(const void* pointer, uint32_t bytes) {
  return pointer != nullptr && reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}
__device__ inline TypeCoding coding_of(const BatchCodec& codec, uint32_t dtype, bool is_raw) {
  if (is_raw) return raw_coding();
  return codec.types[dtype];
}

// A frame header, for values that need not be checked. wire_bytes is the size of the frame if the payloads are fixed,
// otherwise the offset of the payloads.
__device__ inline format::FrameHeader batch_header(const BatchCodec& codec, uint32_t dtype, bool is_raw, uint64_t elems,
                                                   uint32_t flags) {
  const TypeCoding coding = coding_of(codec, dtype, is_raw);
  const uint32_t value_bytes = device::value_bytes_of(static_cast<ncast_dtype>(dtype));
  format::FrameHeader header{};
  header.magic = format::frame_magic;
  header.version = format::frame_version;
  header.codec = is_raw ? static_cast<uint8_t>(NCAST_CODEC_RAW) : id_of(codec.codec);
  header.dtype = static_cast<uint8_t>(dtype);
  header.flags = static_cast<uint8_t>(flags);
  header.elems = elems;
  header.parameters = is_raw ? 0 : codec.codec >> 16;
  const uint64_t raw_bytes = elems * value_bytes;
  if (coding.payload_bytes == 0) {
    header.block_elems = coding.block_bytes / value_bytes;
    const format::FrameLayout layout = format::frame_layout(elems, header.block_elems);
    header.blocks = static_cast<uint32_t>(layout.blocks);
    header.wire_bytes = layout.payload_offset;
  } else {
    header.wire_bytes = sizeof header + raw_bytes / coding.block_bytes * coding.payload_bytes +
                        format::aligned(raw_bytes % coding.block_bytes);
  }
  return header;
}

__device__ inline BatchFrame batch_frame(const BatchCodec& codec, uint32_t dtype, bool is_raw, uint64_t elems,
                                         uint32_t units) {
  const uint32_t block_bytes = coding_of(codec, dtype, is_raw).block_bytes;
  const uint64_t raw_bytes = elems * device::value_bytes_of(static_cast<ncast_dtype>(dtype));
  return {static_cast<uint32_t>((raw_bytes + block_bytes - 1) / block_bytes),
          elems == 0 ? 0 : block_bytes,
          {0, elems, units, static_cast<uint8_t>(dtype), is_raw}};
}

// Checks one array. Writes its status and, if they are already known, the header and the size of its frame.
__device__ inline BatchFrame lay_out_frame(const EncodeBatchArguments& arguments, uint32_t number) {
  const auto dtype = static_cast<uint32_t>(arguments.dtypes[number]);
  const uint64_t elems = arguments.elems[number];
  void* const frame = arguments.frames[number];
  const auto reject = [&](ncast_status status) {
    arguments.statuses[number] = status;
    arguments.wire_bytes[number] = 0;
    return BatchFrame{};
  };
  if (dtype >= dtype_count) return reject(NCAST_INVALID_ARGUMENT);
  const uint32_t value_bytes = device::value_bytes_of(static_cast<ncast_dtype>(dtype));
  if (elems > format::max_raw_bytes / value_bytes || !is_aligned_to(frame, format::alignment) ||
      (elems != 0 && !is_aligned_to(arguments.values[number], value_bytes)))
    return reject(NCAST_INVALID_ARGUMENT);
  const bool is_raw = arguments.codec.types[dtype].is_raw;
  const bool is_variable = arguments.codec.types[dtype].payload_bytes == 0;
  const format::FrameHeader header = batch_header(arguments.codec, dtype, is_raw, elems, arguments.flags);
  const uint64_t bound = header.wire_bytes + (is_variable ? format::aligned(elems * value_bytes) : 0);
  if (arguments.capacities[number] < bound) return reject(NCAST_TOO_SMALL);

  const bool is_known = !is_variable || elems == 0;
  if (is_known) *static_cast<format::FrameHeader*>(frame) = header;
  arguments.wire_bytes[number] = is_known ? header.wire_bytes : 0;
  arguments.statuses[number] = NCAST_OK;
  return batch_frame(arguments.codec, dtype, is_raw, elems, 0);
}

// Checks one frame and its header. Writes the status and the size of the values.
__device__ inline BatchFrame lay_out_frame(const DecodeBatchArguments& arguments, uint32_t number) {
  const void* const frame = arguments.frames[number];
  const uint64_t frame_bytes = arguments.frame_bytes[number];
  const auto reject = [&](ncast_status status) {
    arguments.statuses[number] = status;
    arguments.value_bytes[number] = 0;
    return BatchFrame{};
  };
  if (!is_aligned_to(frame, format::alignment)) return reject(NCAST_INVALID_ARGUMENT);
  if (frame_bytes < sizeof(format::FrameHeader)) return reject(NCAST_CORRUPT);
  const format::FrameHeader header = *static_cast<const format::FrameHeader*>(frame);
  const uint32_t dtype = header.dtype;
  if (dtype >= dtype_count) return reject(NCAST_CORRUPT);
  const uint32_t value_bytes = device::value_bytes_of(static_cast<ncast_dtype>(dtype));
  if (header.elems > format::max_raw_bytes / value_bytes) return reject(NCAST_CORRUPT);
  // Values that the codec does not support are raw, and so may be any others.
  const bool is_raw = header.codec == NCAST_CODEC_RAW;
  if (!is_raw && arguments.codec.types[dtype].is_raw) return reject(NCAST_CORRUPT);
  const format::FrameHeader expected = batch_header(arguments.codec, dtype, is_raw, header.elems, 0);
  const uint64_t raw_bytes = header.elems * value_bytes;
  const bool is_variable = coding_of(arguments.codec, dtype, is_raw).payload_bytes == 0;
  const uint64_t least = expected.wire_bytes + (is_variable ? uint64_t{expected.blocks} * format::alignment : 0);
  const uint64_t most = expected.wire_bytes + (is_variable ? format::aligned(raw_bytes) : 0);
  if (!header_matches(header, expected, frame_bytes) || header.wire_bytes < least || header.wire_bytes > most)
    return reject(NCAST_CORRUPT);
  if (raw_bytes > arguments.value_capacities[number]) return reject(NCAST_TOO_SMALL);
  if (raw_bytes != 0 && !is_aligned_to(arguments.values[number], value_bytes)) return reject(NCAST_INVALID_ARGUMENT);

  arguments.value_bytes[number] = raw_bytes;
  arguments.statuses[number] = NCAST_OK;
  const uint64_t payloads = header.wire_bytes - (is_variable ? expected.wire_bytes : sizeof header);
  return batch_frame(arguments.codec, dtype, is_raw, header.elems, static_cast<uint32_t>(payloads / format::alignment));
}

// Lays out the frames of chunk blockIdx.x, if there is such a chunk. Called by a CTA of lay_out_warps warps.
template <typename Arguments>
__device__ void lay_out_chunk(const Arguments& arguments, LayOutMemory& memory) {
  const BatchLayout& layout = arguments.layout;
  if (blockIdx.x >= layout.chunks) return;
  const int lane = device::lane_id();
  const uint32_t warp = device::warp_id();
  auto* const entries = reinterpret_cast<BatchEntry*>(arguments.workspace + layout.entries_offset());
  const uint32_t first = blockIdx.x * layout.chunk_frames;
  const uint32_t end = min(layout.count - first, layout.chunk_frames) + first;
  uint64_t before = 0;  // blocks of the chunk's frames that have been laid out
  uint32_t block_bytes = 0;
  for (uint32_t step = first; step < end; step += batch_chunk_step) {
    const uint32_t number = step + threadIdx.x;
    BatchFrame frame{};
    if (number < end) frame = lay_out_frame(arguments, number);
    block_bytes = max(block_bytes, frame.block_bytes);
    const uint32_t up_to = device::inclusive_scan(frame.blocks);  // a warp's frames have at most 2^28 blocks
    if (lane == 31) memory.blocks[warp] = up_to;
    __syncthreads();
    uint64_t begin = before + up_to - frame.blocks;
    for (uint32_t i = 0; i < lay_out_warps; ++i) {
      const uint32_t of_warp = memory.blocks[i];
      begin += i < warp ? of_warp : 0;
      before += of_warp;
    }
    __syncthreads();
    if (number >= end) continue;
    frame.entry.begin = begin;
    entries[number] = frame.entry;
  }
  block_bytes = __reduce_max_sync(device::all_lanes, block_bytes);
  if (lane == 0) memory.block_bytes[warp] = block_bytes;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (uint32_t i = 0; i < lay_out_warps; ++i) block_bytes = max(block_bytes, memory.block_bytes[i]);
  reinterpret_cast<BatchChunk*>(arguments.workspace)[blockIdx.x] = {before, block_bytes};
}

// Clears the words of the tiles. Called by all threads of the grid.
__device__ inline void clear_tiles(const BatchLayout& layout, char* workspace) {
  auto* const words = reinterpret_cast<uint32_t*>(workspace + layout.tiles_offset());
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < layout.words();
       i += uint64_t{gridDim.x} * blockDim.x)
    words[i] = 0;
}

}  // namespace narrowcast::codec::cuda
