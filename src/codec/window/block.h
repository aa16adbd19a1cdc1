// The host's block coders of `window`: two implementations of one contract.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/window/format.h"

namespace narrowcast::codec::window {

// Codes whole blocks of one value type. No allocation, no alignment demanded.
struct BlockCoder {
  // values: type.block_bytes(). payload: as many writable bytes. Returns the payload's bytes, a multiple of 16;
  // type.block_bytes() says that the block is stored raw.
  size_t (*encode)(const ValueType& type, const uint8_t* values, uint8_t* payload);
  // payload: any bytes, payload_bytes of them, at most type.block_bytes(). Writes type.block_bytes() to values, or
  // returns false when the payload does not follow the format (values are then unspecified).
  bool (*decode)(const ValueType& type, const uint8_t* payload, size_t payload_bytes, uint8_t* values);
};

// Scalar and plain: the oracle.
extern const BlockCoder reference;
// The same bytes by vector instructions.
extern const BlockCoder vectorized;

// The header word of a payload that is not raw.
struct PayloadHeader {
  int width;
  int base;
  int escapes;
};
// Reads and checks it: false when a field is out of range or the fixed sections do not fit payload_bytes.
bool read_payload_header(const ValueType& type, const uint8_t* payload, size_t payload_bytes, PayloadHeader* header);

}  // namespace narrowcast::codec::window
