// Block coders of codecs without parameters, which only need to know the type of the values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/host_codec.h"

namespace narrowcast::codec {

// Encodes and decodes whole blocks of one value type, which a codec's ValueType describes. Pointers may be unaligned.
template <typename ValueType>
struct TypedCoder {
  // Encodes type.block_bytes() bytes at `values`. `payload` must have room for as many bytes. Returns the payload's
  // size in bytes, a multiple of 16. A size of type.block_bytes() means that the block is stored raw.
  size_t (*encode)(const ValueType& type, const uint8_t* values, uint8_t* payload);
  // Decodes payload_bytes bytes, at most type.block_bytes(), into type.block_bytes() bytes at `values`. The payload may
  // contain anything: returns false if it does not follow the format, and the values are then unspecified.
  bool (*decode)(const ValueType& type, const uint8_t* payload, size_t payload_bytes, uint8_t* values);
};

// A TypedCoder for the codec table. value_type: returns the ValueType of an ncast_dtype.
template <const auto& coder, auto value_type>
inline constexpr BlockCoder table_coder{
    [](const BlockType& type, const BlockContext&, const uint8_t* values, uint8_t* payload) {
      return coder.encode(value_type(type.dtype), values, payload);
    },
    [](const BlockType& type, const uint8_t* payload, size_t payload_bytes, uint8_t* values) {
      return coder.decode(value_type(type.dtype), payload, payload_bytes, values);
    }};

}  // namespace narrowcast::codec
