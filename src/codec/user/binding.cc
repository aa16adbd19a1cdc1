#include "codec/user/binding.h"

#include <array>
#include <atomic>
#include <cstddef>

#include "codec/row.h"

namespace narrowcast::codec::user {
namespace {

using Description = ncast_user_codec_description;

constexpr int ids = NCAST_LAST_USER_CODEC - NCAST_FIRST_USER_CODEC + 1;
// By id. Rows of codecs are published after their entry here.
constinit std::array<std::atomic<const Description*>, ids> descriptions = {};

const Description& description_of(ncast_codec codec) {
  return *descriptions[static_cast<size_t>(id_of(codec) - NCAST_FIRST_USER_CODEC)].load(std::memory_order_acquire);
}

ncast_user_block block_of(const BlockType& type, const Description& description) {
  ncast_user_block block = {type.dtype, type.block_bytes, type.block_elems(), {}};
  unsigned shift = first_parameter_bit;
  for (uint32_t i = 0; i < description.parameter_count; ++i) {
    const ncast_parameter_kind kind = description.parameters[i].kind;
    block.parameters[i] = value_of(kind, get(type.codec, {shift, bits_of(kind)}));
    shift += bits_of(kind);
  }
  return block;
}

size_t encode(const BlockType& type, const BlockContext& context, const uint8_t* values, uint8_t* payload) {
  const Description& description = description_of(type.codec);
  const ncast_user_block block = block_of(type, description);
  const ncast_user_context given = {context.first_elem, context.call, context.rank, context.stage};
  const size_t bytes = description.encode(&block, &given, values, payload);
  // A size that is not valid must not reach frames, which can store any block raw.
  const bool is_valid = bytes != 0 && bytes <= type.block_bytes && bytes % NCAST_FRAME_ALIGN == 0;
  return is_valid || description.fixed_payload != 0 ? bytes : type.block_bytes;
}

bool decode(const BlockType& type, const uint8_t* payload, size_t payload_bytes, uint8_t* values) {
  const Description& description = description_of(type.codec);
  const ncast_user_block block = block_of(type, description);
  return description.decode(&block, payload, payload_bytes, values) != 0;
}

size_t payload_bytes(const BlockType& type) {
  const Description& description = description_of(type.codec);
  const ncast_user_block block = block_of(type, description);
  return description.payload_bytes(&block);
}

double error_bound(const BlockType& type, double largest) {
  const Description& description = description_of(type.codec);
  const ncast_user_block block = block_of(type, description);
  return description.error_bound(&block, largest);
}

}  // namespace

const HostCodec* make_host(const Description& description, const CudaHeader* cuda_header) {
  descriptions[description.id - NCAST_FIRST_USER_CODEC].store(&description, std::memory_order_release);
  auto* const host = new HostCodec{.reference = {encode, decode}, .fast = {encode, decode}, .cuda_header = cuda_header};
  if (description.fixed_payload != 0) host->payload_bytes = payload_bytes;
  if (description.exact == 0) host->error_bound = error_bound;
  return host;
}

}  // namespace narrowcast::codec::user
