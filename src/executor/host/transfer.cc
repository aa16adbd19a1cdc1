#include "executor/host/transfer.h"

#include <bit>
#include <cinttypes>
#include <cstring>

#include "status/error.h"

namespace narrowcast::executor::host {
namespace {

uint64_t chunk_elems(Communicator& comm, const Encoding& encoding) {
  return comm.staging.chunk_bytes() / encoding.value_bytes();
}

}  // namespace

Send::Send(Communicator& comm, int peer, const CallTag& tag, const Encoding& encoding, const void* values,
           uint64_t elems)
    : comm_(comm),
      peer_(peer),
      tag_(tag),
      encoding_(encoding),
      values_(static_cast<const std::byte*>(values)),
      chunks_(elems, chunk_elems(comm, encoding)) {}

ncast_status Send::advance(bool* progressed) {
  channel::RingSender& ring = comm_.world->to(peer_);
  const channel::Slot slot = ring.next_free();
  if (!slot) return NCAST_OK;
  tag_.position = chunks_.first();
  tag_.chunk_elems = chunks_.elems();
  const std::byte* values = chunks_.elems() == 0 ? nullptr : values_ + chunks_.first() * encoding_.value_bytes();
  size_t payload_bytes = 0;
  if (ncast_status status = encode(encoding_, context_of(comm_, tag_, chunks_.first()), values, chunks_.elems(),
                                   slot.payload, ring.payload_capacity_bytes(), &payload_bytes)) {
    return status;
  }
  put(comm_, peer_, ring, slot, tag_, encoding_.value_bytes(), payload_bytes);
  chunks_.next();
  *progressed = true;
  return NCAST_OK;
}

Receive::Receive(Communicator& comm, int peer, const CallTag& tag, const Encoding& encoding, void* values,
                 uint64_t elems)
    : comm_(comm),
      peer_(peer),
      tag_(tag),
      encoding_(encoding),
      values_(static_cast<std::byte*>(values)),
      chunks_(elems, chunk_elems(comm, encoding)) {}

ncast_status Receive::advance(bool* progressed) {
  channel::RingReceiver& ring = comm_.world->from(peer_);
  tag_.position = chunks_.first();
  Payload payload;
  uint64_t elems = 0;
  if (ncast_status status = next_message(comm_, peer_, ring, tag_, &payload, &elems)) return status;
  if (payload.bytes == nullptr) return NCAST_OK;
  if (elems != chunks_.elems()) {
    return fail(NCAST_CORRUPT, "rank %d received a chunk of %" PRIu64 " values from rank %d instead of %" PRIu64,
                comm_.rank(), elems, peer_, chunks_.elems());
  }
  std::byte* values = elems == 0 ? nullptr : values_ + chunks_.first() * encoding_.value_bytes();
  if (ncast_status status = decode(encoding_, payload, elems, peer_, values)) return status;
  ring.release();
  chunks_.next();
  *progressed = true;
  return NCAST_OK;
}

CompareCalls::CompareCalls(Communicator& comm, const CallTag& tag)
    : comm_(comm), tag_(tag), waiting_(comm.all_peers()) {}

ncast_status CompareCalls::advance(bool* progressed) {
  for (channel::RankSet left = waiting_; left != 0; left &= left - 1) {
    const int peer = std::countr_zero(left);
    channel::Tag packed;
    if (!comm_.world->collective_of(peer, &packed)) continue;
    CallTag theirs = unpack(packed);
    if (theirs.sequence < tag_.sequence) continue;
    // If the peer has already begun a later call, it has compared this one itself.
    if (theirs.sequence == tag_.sequence) {
      const bool early = theirs.phase < tag_.phase;
      theirs.phase = tag_.phase;
      if (!same_call(theirs, tag_)) return mismatch(comm_, tag_, peer, theirs);
      if (early) continue;
    }
    waiting_ &= ~channel::rank_bit(peer);
    *progressed = true;
  }
  return NCAST_OK;
}

ncast_status Copy::advance(bool* progressed) {
  if (from_ != to_ && bytes_ != 0) std::memmove(to_, from_, bytes_);
  done_ = true;
  *progressed = true;
  return NCAST_OK;
}

}  // namespace narrowcast::executor::host
