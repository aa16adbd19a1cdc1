// Adds the block coders of `dense` to the codec table.
#include "codec/dense/block.h"

namespace narrowcast::codec::dense {
namespace {

enum Counter { raw_blocks, trimmed_blocks, zero_first_blocks, paired_groups, groups };
constexpr const char* counter_names[] = {"raw_blocks", "trimmed_blocks", "zero_first_blocks", "paired_groups",
                                         "groups"};

// Adds one block to the counters. Reads only its header. Returns false if it is invalid.
bool count(const BlockType& block, const uint8_t* payload, size_t payload_bytes, uint64_t* counters) {
  const ValueType type = value_type(block.dtype);
  PayloadHeader header;
  if (!read_payload_header(type, payload, payload_bytes, &header)) return false;
  counters[trimmed_blocks] += header.kept < type.rest_bits();
  counters[zero_first_blocks] += header.zero_first;
  counters[groups] += static_cast<uint64_t>(type.groups());
  for (int group = 0; group < type.groups(); ++group)
    counters[paired_groups] += static_cast<uint64_t>(header.groups[group].code.paired);
  return true;
}

}  // namespace

extern const HostCodec host;
const HostCodec host{
    .reference = table_coder<reference, value_type>,
    .fast = table_coder<fast, value_type>,
    .counter_names = counter_names,
    .count = count,
};

}  // namespace narrowcast::codec::dense
