// Translates the model of a table for the kernels that encode.
#pragma once

#include "store/cuda/build/encode_arguments.h"
#include "store/rows/model.h"

namespace narrowcast::store::cuda {

// Masks and values of `invariant` point into the model.
EncodeFormat encode_format_of(const Model& model);

// What the addresses of rows must be multiples of: the bytes of an element, or of a chunk.
inline uint32_t row_alignment(const Model& model) {
  return model.coder == Coder::INVARIANT ? model.chunk_bytes : static_cast<uint32_t>(model.elem_bytes());
}

}  // namespace narrowcast::store::cuda
