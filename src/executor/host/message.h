// The payload of a message: values, encoded with a codec.
#pragma once

#include "channel/host/world.h"
#include "device/block_context.h"
#include "executor/call.h"
#include "executor/host/communicator.h"

namespace narrowcast::executor::host {

// How the values of a message are encoded.
struct Encoding {
  ncast_dtype dtype;
  ncast_codec codec;  // not AUTO

  uint64_t value_bytes() const { return ncast_dtype_bytes(dtype); }
  bool is_raw() const { return codec == NCAST_CODEC_RAW; }
};

// The encoding of a call's messages.
inline Encoding encoding_of(const Call& call) { return {call.dtype, call.chosen_codec}; }

struct Payload {
  const std::byte* bytes = nullptr;
  uint64_t count = 0;  // bytes
};

// Encodes values to `target`, which has room for any message of the communicator or plan. No values: no bytes.
ncast_status encode(const Encoding& encoding, const device::BlockContext& context, const void* values, uint64_t elems,
                    void* target, size_t capacity_bytes, size_t* payload_bytes);
// The context of a call's values from `first_elem` on.
device::BlockContext context_of(const Communicator& comm, const CallTag& tag, uint64_t first_elem);

// Decodes the payload of a message from `peer` that has `elems` values. Error: CORRUPT.
ncast_status decode(const Encoding& encoding, const Payload& payload, uint64_t elems, int peer, void* values);

// Puts a message whose payload is already in the slot, and counts it. value_bytes: of each of its values.
void put(Communicator& comm, int peer, channel::RingSender& ring, const channel::Slot& slot, const CallTag& tag,
         size_t value_bytes, uint64_t payload_bytes);

// NCAST_MISMATCH, with a message that compares this rank's call with a peer's.
ncast_status mismatch(const Communicator& comm, const CallTag& own, int peer, const CallTag& theirs);

// Gets the next message from a peer, without releasing it: `elems` receives the number of its values, and its tag must
// otherwise be `expected`. *payload is empty if no message has arrived. Errors: MISMATCH, CORRUPT.
ncast_status next_message(Communicator& comm, int peer, channel::RingReceiver& ring, const CallTag& expected,
                          Payload* payload, uint64_t* elems);

}  // namespace narrowcast::executor::host
