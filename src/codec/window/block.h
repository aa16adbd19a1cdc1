// Host block coders of the codec `window`: two implementations of one interface.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/window/format.h"

namespace narrowcast::codec::window {

// Encodes and decodes whole blocks of one value type. Pointers may be unaligned.
struct BlockCoder {
  // Encodes type.block_bytes() bytes at `values`. `payload` must have room for as many bytes. Returns the payload's
  // size in bytes, a multiple of 16. A size of type.block_bytes() means that the block is stored raw.
  size_t (*encode)(const ValueType& type, const uint8_t* values, uint8_t* payload);
  // Decodes payload_bytes bytes, at most type.block_bytes(), into type.block_bytes() bytes at `values`. The payload may
  // contain anything: returns false if it does not follow the format, and the values are then unspecified.
  bool (*decode)(const ValueType& type, const uint8_t* payload, size_t payload_bytes, uint8_t* values);
};

// A simple scalar implementation, which tests use as the oracle.
extern const BlockCoder reference;
// Uses vector instructions; produces the same bytes.
extern const BlockCoder vectorized;

// The header word of a payload that is not stored raw.
struct PayloadHeader {
  int width;
  int base;
  int escapes;
  ValueType stored;  // the type as it is stored: trimmed or not
};
// Reads and checks the header. Returns false if a field is out of range or the fixed sections exceed payload_bytes.
bool read_payload_header(const ValueType& type, const uint8_t* payload, size_t payload_bytes, PayloadHeader* header);

}  // namespace narrowcast::codec::window
