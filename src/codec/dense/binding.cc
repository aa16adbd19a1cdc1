// Adds the block coders of `dense` to the codec table.
#include "codec/dense/block.h"
#include "codec/host_codec.h"

namespace narrowcast::codec::dense {
namespace {

template <const BlockCoder& coder>
size_t encode(const BlockType& type, const BlockContext&, const uint8_t* values, uint8_t* payload) {
  return coder.encode(value_type(type.dtype), values, payload);
}

template <const BlockCoder& coder>
bool decode(const BlockType& type, const uint8_t* payload, size_t payload_bytes, uint8_t* values) {
  return coder.decode(value_type(type.dtype), payload, payload_bytes, values);
}

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
    .reference = {encode<reference>, decode<reference>},
    .fast = {encode<fast>, decode<fast>},
    .counter_names = counter_names,
    .count = count,
};

}  // namespace narrowcast::codec::dense
