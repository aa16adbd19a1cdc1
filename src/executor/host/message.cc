#include "executor/host/message.h"

#include <cinttypes>
#include <cstring>

#include "codec/frame/encode_frame.h"
#include "status/error.h"

namespace narrowcast::executor::host {

device::BlockContext context_of(const Communicator& comm, const CallTag& tag, uint64_t first_elem) {
  return {first_elem, static_cast<uint32_t>(tag.sequence - 1), static_cast<uint32_t>(comm.rank()), 0};
}

ncast_status encode(const Encoding& encoding, const device::BlockContext& context, const void* values, uint64_t elems,
                    void* target, size_t capacity_bytes, size_t* payload_bytes) {
  *payload_bytes = elems * encoding.value_bytes();
  if (elems == 0) return NCAST_OK;
  // Codec `raw` sends bare values without a frame header, because the tag has all the information.
  if (encoding.is_raw()) {
    std::memcpy(target, values, *payload_bytes);
    return NCAST_OK;
  }
  return codec::encode_frame(values, encoding.dtype, elems, encoding.codec, NCAST_NO_CHECKSUM, context, target,
                             capacity_bytes, payload_bytes);
}

ncast_status decode(const Encoding& encoding, const Payload& payload, uint64_t elems, int peer, void* values) {
  const uint64_t raw_bytes = elems * encoding.value_bytes();
  if (raw_bytes == 0) return NCAST_OK;
  if (encoding.is_raw()) {
    if (payload.count != raw_bytes) {
      return fail(NCAST_CORRUPT, "a chunk from rank %d has %" PRIu64 " bytes instead of %" PRIu64, peer, payload.count,
                  raw_bytes);
    }
    std::memcpy(values, payload.bytes, raw_bytes);
    return NCAST_OK;
  }
  ncast_frame_info info = {};
  info.struct_bytes = sizeof info;
  if (ncast_status status = ncast_decode(payload.bytes, payload.count, 0, values, raw_bytes, &info)) return status;
  if (info.elems == elems && info.dtype == encoding.dtype) return NCAST_OK;
  return fail(NCAST_CORRUPT, "a frame from rank %d holds %" PRIu64 " values instead of %" PRIu64, peer, info.elems,
              elems);
}

void put(Communicator& comm, int peer, channel::RingSender& ring, const channel::Slot& slot, const CallTag& tag,
         size_t value_bytes, uint64_t payload_bytes) {
  slot.header->tag = pack(tag);
  slot.header->payload_bytes = payload_bytes;
  ring.put();
  comm.count_sent(tag.operation, tag.chunk_elems * value_bytes, payload_bytes);
  if (comm.world->host_of(peer) != comm.world->host_of(comm.rank())) comm.count_crossed(payload_bytes);
}

ncast_status mismatch(const Communicator& comm, const CallTag& own, int peer, const CallTag& theirs) {
  return fail(NCAST_MISMATCH, "ranks differ in %s: rank %d is in %s, rank %d in %s", differences(theirs, own).c_str(),
              comm.rank(), describe(own).c_str(), peer, describe(theirs).c_str());
}

ncast_status next_message(Communicator& comm, int peer, channel::RingReceiver& ring, const CallTag& expected,
                          Payload* payload, uint64_t* elems) {
  *payload = {};
  const channel::Slot slot = ring.next_filled();
  if (!slot) return NCAST_OK;
  const CallTag tag = unpack(slot.header->tag);
  if (!same_call(tag, expected)) return mismatch(comm, expected, peer, tag);
  if (tag.position != expected.position || slot.header->payload_bytes > ring.payload_capacity_bytes()) {
    return fail(NCAST_CORRUPT, "rank %d received an unexpected chunk from rank %d: values %" PRIu64 " to %" PRIu64,
                comm.rank(), peer, tag.position, tag.position + tag.chunk_elems);
  }
  *payload = {slot.payload, slot.header->payload_bytes};
  *elems = tag.chunk_elems;
  return NCAST_OK;
}

}  // namespace narrowcast::executor::host
