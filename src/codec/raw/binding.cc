// The codec `raw`: the payload consists of the values.
#include <cstring>

#include "codec/host_codec.h"

namespace narrowcast::codec::raw {
namespace {

size_t encode(const BlockType& type, const BlockContext&, const uint8_t* values, uint8_t* payload) {
  std::memcpy(payload, values, type.block_bytes);
  return type.block_bytes;
}

bool decode(const BlockType& type, const uint8_t* payload, size_t payload_bytes, uint8_t* values) {
  if (payload_bytes != type.block_bytes) return false;
  std::memcpy(values, payload, payload_bytes);
  return true;
}

}  // namespace

extern const HostCodec host;
const HostCodec host{
    .reference = {encode, decode},
    .fast = {encode, decode},
    .payload_bytes = [](const BlockType& type) -> size_t { return type.block_bytes; },
};

}  // namespace narrowcast::codec::raw
