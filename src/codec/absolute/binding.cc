// Adds the block coders of `abs` to the codec table.
#include <iterator>

#include "codec/absolute/block.h"
#include "codec/absolute/format.h"

namespace narrowcast::codec::absolute {
namespace {

enum Counter { raw_blocks, constant_blocks, raw_groups, repeated_groups, code_bits };
constexpr const char* counter_names[] = {"raw_blocks", "constant_blocks", "raw_groups", "repeated_groups", "code_bits"};
static_assert(std::size(counter_names) == code_bits + 1);

// Adds one block to the counters. Reads only its modes. Returns false if they are invalid.
bool count(const BlockType&, const uint8_t* payload, size_t payload_bytes, uint64_t* counters) {
  if (payload_bytes == constant_payload_bytes) {
    ++counters[constant_blocks];
    return true;
  }
  if (payload_bytes < words_offset) return false;
  for (uint32_t group = 0; group < groups; ++group) {
    const uint32_t mode = payload[modes_offset + group];
    if (!is_mode(mode)) return false;
    counters[raw_groups] += mode == raw_mode;
    counters[repeated_groups] += mode == repeated_mode;
    counters[code_bits] += mode <= most_width ? mode : 0;
  }
  return true;
}

}  // namespace

extern const HostCodec host;
const HostCodec host{
    .reference = reference,
    .fast = fast,
    .error_bound = [](const BlockType& type, double) { return double{Step(type.codec).error}; },
    .counter_names = counter_names,
    .count = count,
};

}  // namespace narrowcast::codec::absolute
