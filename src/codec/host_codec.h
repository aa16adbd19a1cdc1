// What a codec implements on the host: functions for one whole block. They do not allocate and demand no alignment.
#pragma once

#include <array>
#include <span>

#include "codec/row.h"

namespace narrowcast::codec {

// Blocks of one value type, encoded with one codec and its parameters.
struct BlockType {
  ncast_dtype dtype;
  uint32_t block_bytes;                              // of the values
  std::array<uint16_t, most_parameters> parameters;  // the values in effect: never 0 for "default"

  uint32_t block_elems() const { return block_bytes / static_cast<uint32_t>(ncast_dtype_bytes(dtype)); }
};

struct BlockCoder {
  // values: block_bytes. payload: as many writable bytes. Returns the payload's bytes, a multiple of 16. With a
  // variable payload, block_bytes means that the block is stored raw.
  size_t (*encode)(const BlockType& type, const uint8_t* values, uint8_t* payload);
  // payload: any payload_bytes bytes, at most block_bytes. Writes block_bytes to values, or returns false if the
  // payload does not follow the format; values are then unspecified.
  bool (*decode)(const BlockType& type, const uint8_t* payload, size_t payload_bytes, uint8_t* values);
};

// binding.cc of a codec's folder defines one, named <codec>::host.
struct HostCodec {
  BlockCoder reference;  // scalar and plain: the oracle
  BlockCoder fast;       // the same bytes; may be the reference
  // Fixed payloads: bytes of the payload of a whole block, a multiple of 16. Else NULL.
  size_t (*payload_bytes)(const BlockType& type) = nullptr;
  // Bounded codecs: the largest absolute error in a block whose largest finite magnitude is `largest`. Else NULL.
  double (*error_bound)(const BlockType& type, double largest) = nullptr;
  // Statistics: `count` adds one payload that is not a raw block to the counters of these names; false if the payload's
  // sections do not fit its length. With a variable payload, counter 0 is of raw blocks. NULL if there are no counters.
  std::span<const char* const> counter_names = {};
  bool (*count)(const BlockType& type, const uint8_t* payload, size_t payload_bytes, uint64_t* counters) = nullptr;
};

}  // namespace narrowcast::codec
