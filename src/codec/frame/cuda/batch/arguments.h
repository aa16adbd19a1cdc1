// The arguments of the batch kernels, and the tables that they keep in the caller's workspace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/frame/layout.h"
#include "codec/row.h"
#include "narrowcast/cuda.h"

namespace narrowcast::codec::cuda {

// How values of one type are encoded. Raw counts as a codec with fixed payloads that are as long as the values.
struct TypeCoding {
  uint32_t block_bytes;    // size of the values of a block
  uint32_t payload_bytes;  // of a whole block; 0: variable
  bool is_raw;
};
constexpr TypeCoding raw_coding() { return {4096, 4096, true}; }

struct BatchCodec {
  ncast_codec codec;  // with values instead of 0 for "default"
  TypeCoding types[dtype_count];
};

// What the first kernel notes about a frame.
struct BatchEntry {
  uint64_t begin;  // blocks of the chunk's frames before this one
  uint64_t elems;
  uint32_t units;  // decoding: size of the payloads in units of format::alignment
  uint8_t dtype;
  bool is_raw;
};

// The frames are divided into chunks. One CTA of the first kernel lays out each of them.
inline constexpr uint32_t max_batch_chunks = 128;
inline constexpr uint32_t batch_chunk_step = 1024;  // frames of a chunk that are laid out at once
struct BatchChunk {
  uint64_t blocks;
  uint32_t block_bytes;  // the largest of its frames; 0 if it has no blocks
};

// The minimum of the blocks of a tile, which determines the size of the workspace.
inline constexpr uint32_t min_batch_coders = 2;
// The warps of a CTA that encodes, besides its coders.
inline constexpr uint32_t batch_service_warps = 2;

// The positions of the tables in the workspace. For decoding, there are no words for tiles.
struct BatchLayout {
  uint32_t count;         // frames
  uint32_t chunk_frames;  // frames per chunk; the last one may have fewer
  uint32_t chunks;
  uint32_t max_tiles;

  static BatchLayout of(uint32_t count, uint32_t max_tiles) {
    const uint32_t steps = (count + batch_chunk_step - 1) / batch_chunk_step;
    const uint32_t chunk_frames = (steps + max_batch_chunks - 1) / max_batch_chunks * batch_chunk_step;
    return {count, chunk_frames, chunk_frames == 0 ? 0 : (count + chunk_frames - 1) / chunk_frames, max_tiles};
  }
  constexpr size_t entries_offset() const { return max_batch_chunks * sizeof(BatchChunk); }
  constexpr size_t tiles_offset() const { return format::aligned(entries_offset() + count * sizeof(BatchEntry)); }
  // The counter of claimed tiles, then a word for each of them: the struct Workspace of tiles.cuh.
  constexpr uint32_t words() const { return 2 + max_tiles; }
  constexpr size_t bytes() const { return format::aligned(tiles_offset() + words() * sizeof(uint32_t)); }
};

// Arrays are in device memory and have layout.count elements.
struct EncodeBatchArguments {
  BatchCodec codec;
  BatchLayout layout;
  const void* const* values;
  const ncast_dtype* dtypes;
  const uint64_t* elems;
  void* const* frames;
  const size_t* capacities;
  size_t* wire_bytes;
  ncast_device_status* statuses;
  char* workspace;
  uint32_t shared_bytes;  // dynamic shared memory of a CTA of the second kernel
  uint8_t flags;          // of the headers
};
struct DecodeBatchArguments {
  BatchCodec codec;
  BatchLayout layout;
  const void* const* frames;
  const size_t* frame_bytes;
  void* const* values;
  const size_t* value_capacities;
  size_t* value_bytes;
  ncast_device_status* statuses;
  char* workspace;
  uint32_t shared_bytes;
};

}  // namespace narrowcast::codec::cuda
