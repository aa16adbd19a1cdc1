// Host block coders of the codec `dense`: two implementations of one interface.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/dense/format.h"
#include "codec/typed_coder.h"

namespace narrowcast::codec::dense {

using BlockCoder = TypedCoder<ValueType>;

// A simple scalar implementation, which tests use as the oracle.
extern const BlockCoder reference;
// Uses vector instructions where the CPU has them; produces the same bytes.
extern const BlockCoder fast;

inline constexpr uint32_t order_bits[orders] = {NARROWCAST_DENSE_ORDERS};
// rank_offset() by rank and order.
inline constexpr auto rank_offsets = [] {
  std::array<std::array<int8_t, orders>, most_ranks> table{};
  for (int rank = 0; rank < most_ranks; ++rank)
    for (int order = 0; order < orders; ++order)
      table[static_cast<size_t>(rank)][static_cast<size_t>(order)] =
          static_cast<int8_t>(rank_offset(order_bits[order], rank));
  return table;
}();

// How one group is coded.
struct GroupHeader {
  Code code;
  int code_number;
  int order;
  int base;
};

// The end of a payload that is not stored raw.
struct PayloadHeader {
  int kept;  // bits of sign and mantissa that are stored
  bool zero_first;
  GroupHeader groups[4];

  // The position of a rank, below the group's code.ranks().
  int position(const ValueType& type, const GroupHeader& group, int rank) const {
    if (zero_first && rank == 0) return type.exponent_bits > 8 ? zero_position : -group.base & 255;
    return rank_offsets[static_cast<size_t>(zero_first ? rank - 1 : rank)][static_cast<size_t>(group.order)] & 255;
  }
};
// Reads and checks it. Returns false if a field is out of range, or the sections before the stream exceed the payload.
bool read_payload_header(const ValueType& type, const uint8_t* payload, size_t payload_bytes, PayloadHeader* header);
void write_payload_header(const ValueType& type, const PayloadHeader& header, uint8_t* payload, size_t payload_bytes);

// The exponent at a position.
constexpr int exponent_at(const ValueType& type, int base, int position) {
  if (type.exponent_bits <= 8) return (base + position) & type.exponent_mask();
  if (position == zero_position) return 0;
  return (base + (position ^ 128) - 128) & type.exponent_mask();
}
// The position of an exponent, or -1 if it has none.
constexpr int position_of(const ValueType& type, int base, int exponent) {
  if (type.exponent_bits <= 8) return (exponent - base) & 255;
  if (exponent == 0) return zero_position;
  return exponent - base > -128 && exponent - base < 128 ? (exponent - base) & 255 : -1;
}

}  // namespace narrowcast::codec::dense
