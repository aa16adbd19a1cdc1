// The host implementation of a codec: functions for one whole block. They do not allocate and require no alignment.
#pragma once

#include <span>
#include <string>

#include "codec/row.h"
#include "device/block_context.h"

namespace narrowcast::codec {

// Blocks of one value type, encoded with one codec and its parameters.
struct BlockType {
  ncast_dtype dtype;
  uint32_t block_bytes;  // size of the values
  ncast_codec codec;     // explicit_parameters(): no parameter is 0 for "default"

  uint32_t block_elems() const { return block_bytes / static_cast<uint32_t>(ncast_dtype_bytes(dtype)); }
};

using device::BlockContext;

struct BlockCoder {
  // values: block_bytes readable bytes. payload: block_bytes writable bytes. Returns the size of the payload, a
  // multiple of 16. A codec with a variable payload returns block_bytes for a block that is stored raw: the values.
  size_t (*encode)(const BlockType& type, const BlockContext& context, const uint8_t* values, uint8_t* payload);
  // payload: payload_bytes arbitrary bytes, at most block_bytes. Writes block_bytes to values. Returns false if the
  // payload does not follow the format; values are then unspecified. A payload is decoded without a context, because
  // frames and relayed messages are decoded where nobody knows it.
  bool (*decode)(const BlockType& type, const uint8_t* payload, size_t payload_bytes, uint8_t* values);
};

// The CUDA header of a user's codec: its path, for the messages of the compiler, and a digest of its text.
struct CudaHeader {
  std::string path, text, digest;
};

// binding.cc in a codec's folder defines one, named <codec>::host.
struct HostCodec {
  BlockCoder reference;  // simple scalar code, the oracle of the tests
  BlockCoder fast;       // produces the same bytes; may equal `reference`
  // Fixed payloads: size of the payload of a whole block, a multiple of 16. Otherwise NULL.
  size_t (*payload_bytes)(const BlockType& type) = nullptr;
  // Bounded codecs: the maximum absolute error in a block whose largest finite magnitude is `largest`. Otherwise NULL.
  double (*error_bound)(const BlockType& type, double largest) = nullptr;
  // Statistics: `count` adds one payload of a block that is not stored raw to the counters with these names. It returns
  // false if the sections of the payload do not fit its length. If payloads are variable, counter 0 counts the blocks
  // that are stored raw. NULL if there are no counters.
  std::span<const char* const> counter_names = {};
  bool (*count)(const BlockType& type, const uint8_t* payload, size_t payload_bytes, uint64_t* counters) = nullptr;
  const CudaHeader* cuda_header = nullptr;  // of a user's codec that GPUs have, too
};

}  // namespace narrowcast::codec
