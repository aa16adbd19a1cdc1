#include "codec/dense/block.h"

namespace narrowcast::codec::dense {

bool read_payload_header(const ValueType& type, const uint8_t* payload, size_t payload_bytes, PayloadHeader* header) {
  if (payload_bytes % format::alignment != 0 || payload_bytes < static_cast<size_t>(type.header_bytes())) return false;
  const uint8_t* next = payload + payload_bytes - type.header_bytes();
  for (int i = 0; i < type.groups(); ++i, next += type.group_word_bytes()) {
    const int word = next[0] | next[1] << 8 | (type.group_word_bytes() == 3 ? next[2] << 16 : 0);
    const int number = word & (codes - 1);
    header->groups[i] = {code_of(number), number, word >> order_shift & (orders - 1), word >> base_shift};
    if (header->groups[i].base > type.exponent_mask()) return false;
  }
  if ((*next & ~(trim_mask | zero_first_bit)) != 0 || (*next & trim_mask) > type.mantissa_bits()) return false;
  header->kept = type.rest_bits() - (*next & trim_mask);
  header->zero_first = (*next & zero_first_bit) != 0;
  return payload_bytes >= static_cast<size_t>(type.payload_bytes(header->kept, 0, 0));
}

void write_payload_header(const ValueType& type, const PayloadHeader& header, uint8_t* payload, size_t payload_bytes) {
  uint8_t* next = payload + payload_bytes - type.header_bytes();
  for (int i = 0; i < type.groups(); ++i) {
    const GroupHeader& group = header.groups[i];
    const int word = group.code_number | group.order << order_shift | group.base << base_shift;
    for (int byte = 0; byte < type.group_word_bytes(); ++byte) *next++ = static_cast<uint8_t>(word >> 8 * byte);
  }
  *next = static_cast<uint8_t>((type.rest_bits() - header.kept) | (header.zero_first ? zero_first_bit : 0));
}

}  // namespace narrowcast::codec::dense
