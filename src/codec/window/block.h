// Host block coders of the codec `window`: two implementations of one interface.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/typed_coder.h"
#include "codec/window/format.h"

namespace narrowcast::codec::window {

using BlockCoder = TypedCoder<ValueType>;

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
