// The functions of the vectorized coder `window` that one instruction set has: each is compiled in a file of its own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "store/rows/fast.h"
#include "store/rows/model.h"

namespace narrowcast::store::window {

// Code the values that follow the stages. `body` has `room` bytes; encode() returns the bytes of the body, or `room` if
// it does not fit.
struct ValuesCoder {
  size_t (*encode)(const Model& model, const uint8_t* values, size_t elems, uint8_t* body, size_t room,
                   uint32_t* header);
  bool (*decode)(const Model& model, uint32_t header, const uint8_t* body, size_t body_bytes, size_t elems,
                 uint8_t* values);
};

// trimmed: the model removes low bits.
template <InstructionSet set>
ValuesCoder values_coder(ncast_dtype dtype, bool trimmed);
template <>
ValuesCoder values_coder<InstructionSet::baseline>(ncast_dtype dtype, bool trimmed);
template <>
ValuesCoder values_coder<InstructionSet::avx2>(ncast_dtype dtype, bool trimmed);
template <>
ValuesCoder values_coder<InstructionSet::avx512>(ncast_dtype dtype, bool trimmed);

}  // namespace narrowcast::store::window
