// Adds the block coders of `window` to the codec table.
#include "codec/window/block.h"

namespace narrowcast::codec::window {
namespace {

// The first counters are indexed by width: counter w counts the blocks with w-bit codes.
enum Counter { raw_blocks, widest = 5, escapes, far_escapes, trimmed_blocks };
constexpr const char* counter_names[] = {"raw_blocks",     "width_1_blocks", "width_2_blocks",
                                         "width_3_blocks", "width_4_blocks", "width_5_blocks",
                                         "escapes",        "far_escapes",    "trimmed_blocks"};
static_assert(std::size(counter_names) == trimmed_blocks + 1);

// Adds one block to the counters. Reads only its header and tokens. Returns false if they are invalid.
bool count(const BlockType& block, const uint8_t* payload, size_t payload_bytes, uint64_t* counters) {
  const ValueType type = value_type(block.dtype);
  PayloadHeader header;
  if (!read_payload_header(type, payload, payload_bytes, &header)) return false;
  const uint8_t* tokens = payload + header.stored.escape_offset(header.width);
  int far = 0;
  for (int i = 0; i < header.escapes; ++i) far += (tokens[i / 2] >> i % 2 * 4 & 15) == far_token;
  ++counters[header.width];
  counters[escapes] += static_cast<uint64_t>(header.escapes);
  counters[far_escapes] += static_cast<uint64_t>(far);
  counters[trimmed_blocks] += header.stored.trimmed_bits() != 0 ? 1 : 0;
  return payload_bytes == static_cast<size_t>(header.stored.payload_bytes(header.width, header.escapes, far));
}

}  // namespace

extern const HostCodec host;
const HostCodec host{
    .reference = table_coder<reference, value_type>,
    .fast = table_coder<vectorized, value_type>,
    .counter_names = counter_names,
    .count = count,
};

}  // namespace narrowcast::codec::window
