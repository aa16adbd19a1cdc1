// Packs eight words of four one-byte fields into `width` words, and unpacks them: "Packed sections" in
// docs/format/window.md. Every shift and mask is a constant once the loops are unrolled.
#pragma once

#include <cstdint>

#include "../../device/warp.cuh"
#include "format.h"

namespace narrowcast::codec::window {

namespace packing {
// The bits of a leftover field that go to the top of byte `row`. `field` counts from the first field that did not fit
// whole.
struct Piece {
  int count;       // number of bits
  int field_bit;   // position in the field
  int packed_bit;  // position in the byte
};
__host__ __device__ constexpr Piece piece(int width, int field, int row) {
  const int whole = 8 / width, spare = 8 - whole * width;
  const int field_begin = field * width, field_end = field_begin + width;
  const int row_begin = row * spare, row_end = row_begin + spare;
  const int begin = field_begin > row_begin ? field_begin : row_begin;
  const int end = field_end < row_end ? field_end : row_end;
  return {end > begin ? end - begin : 0, begin - field_begin, whole * width + begin - row_begin};
}
__device__ __forceinline__ uint32_t shifted(uint32_t word, int left) {
  return left >= 0 ? word << left : word >> -left;
}
}  // namespace packing

// fields[k]: four fields, each less than 2^Width.
template <int Width>
__device__ __forceinline__ void pack(const uint32_t (&fields)[group_words], uint32_t (&packed)[Width]) {
  constexpr int whole = 8 / Width;
  constexpr int leftover = group_words - whole * Width;
#pragma unroll
  for (int row = 0; row < Width; ++row) {
    uint32_t word = fields[row * whole];
#pragma unroll
    for (int i = 1; i < whole; ++i) word += fields[row * whole + i] << (i * Width);
#pragma unroll
    for (int field = 0; field < leftover; ++field) {
      const packing::Piece piece = packing::piece(Width, field, row);
      if (piece.count > 0)
        word |= packing::shifted(fields[whole * Width + field], piece.packed_bit - piece.field_bit) &
                device::bytes4(((1u << piece.count) - 1) << piece.packed_bit);
    }
    packed[row] = word;
  }
}

template <int Width>
__device__ __forceinline__ void unpack(const uint32_t (&packed)[Width], uint32_t (&fields)[group_words]) {
  constexpr int whole = 8 / Width;
  constexpr int leftover = group_words - whole * Width;
#pragma unroll
  for (int word = 0; word < whole * Width; ++word)
    fields[word] = packed[word / whole] >> (word % whole * Width) & device::bytes4((1u << Width) - 1);
#pragma unroll
  for (int field = 0; field < leftover; ++field) {
    uint32_t value = 0;
#pragma unroll
    for (int row = 0; row < Width; ++row) {
      const packing::Piece piece = packing::piece(Width, field, row);
      if (piece.count > 0)
        value |= packing::shifted(packed[row], piece.field_bit - piece.packed_bit) &
                 device::bytes4(((1u << piece.count) - 1) << piece.field_bit);
    }
    fields[whole * Width + field] = value;
  }
}

}  // namespace narrowcast::codec::window
