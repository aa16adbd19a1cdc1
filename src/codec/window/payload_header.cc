#include <cstring>

#include "codec/window/block.h"

namespace narrowcast::codec::window {

bool read_payload_header(const ValueType& type, const uint8_t* payload, size_t payload_bytes, PayloadHeader* header) {
  if (payload_bytes % format::alignment != 0 || payload_bytes < format::alignment) return false;
  uint32_t word;
  std::memcpy(&word, payload + payload_bytes - 4, 4);
  header->width = static_cast<int>(word & width_mask);
  header->base = static_cast<int>(word >> base_shift & base_mask);
  header->escapes = static_cast<int>(word >> escapes_shift & escapes_mask);
  const auto kept = static_cast<int>(word >> kept_shift);
  if (kept != 0 && !type.can_keep(kept)) return false;
  header->stored = kept == 0 ? type : type.trimmed(kept);
  if (header->width < 1 || header->width > type.max_width()) return false;
  if (header->base > (1 << type.exponent_bits) - (1 << header->width)) return false;
  if (header->escapes > type.block_elems()) return false;
  return payload_bytes >= static_cast<size_t>(header->stored.payload_bytes(header->width, header->escapes, 0));
}

}  // namespace narrowcast::codec::window
