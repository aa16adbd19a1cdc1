// Where the values of a lane are in a block that consists of groups of 1024 values.
#pragma once

#include <cstdint>

namespace narrowcast::device {

// Byte offset in the block of value number `sequence` (0 to 31) of `lane` in `group`. A lane has 32 values of each
// group, in vectors of 16 bytes; the vectors of the lanes alternate.
template <uint32_t value_bytes>
__device__ __forceinline__ uint32_t value_offset(uint32_t group, uint32_t sequence, uint32_t lane) {
  constexpr uint32_t lanes = 32, vector_bytes = 16, in_vector = vector_bytes / value_bytes;
  return group * (lanes * 32 * value_bytes) + (sequence / in_vector * lanes + lane) * vector_bytes +
         sequence % in_vector * value_bytes;
}

}  // namespace narrowcast::device
