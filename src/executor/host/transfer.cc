#include "executor/host/transfer.h"

#include <bit>
#include <cinttypes>
#include <cstring>

#include "codec/codec.h"
#include "executor/host/operations.h"
#include "narrowcast/codec.h"
#include "select/decision.h"
#include "status/error.h"

namespace narrowcast::executor::host {
namespace {

ncast_dtype dtype_of(const CallTag& tag) { return static_cast<ncast_dtype>(tag.dtype); }
uint64_t value_bytes(const CallTag& tag) { return ncast_dtype_bytes(dtype_of(tag)); }

ncast_status encode(const CallTag& tag, const void* values, uint64_t elems, void* payload, size_t capacity_bytes,
                    size_t* payload_bytes) {
  // Codec `raw` sends bare values without a frame header, because the tag has all the information.
  if (codec_of(tag) == NCAST_CODEC_RAW) {
    *payload_bytes = elems * value_bytes(tag);
    std::memcpy(payload, values, *payload_bytes);
    return NCAST_OK;
  }
  return ncast_encode(values, dtype_of(tag), elems, codec_of(tag), 0, payload, capacity_bytes, payload_bytes);
}

}  // namespace

ncast_status mismatch(const Communicator& comm, const CallTag& own, int peer, const CallTag& theirs) {
  return fail(NCAST_MISMATCH, "ranks differ in %s: rank %d is in %s, rank %d in %s", differences(theirs, own).c_str(),
              comm.rank(), describe(own).c_str(), peer, describe(theirs).c_str());
}

ncast_codec codec_of(const CallTag& tag) {
  // On this backend the link is memory, so AUTO chooses raw: encoding would cost as much as the copy that it shortens.
  return select::codec_between_processes(tag.codec);
}

bool is_exact(const CallTag& tag) { return codec::is_exact(codec_of(tag)); }

uint64_t moved_chunk_elems(Communicator& comm, ncast_dtype dtype) {
  return comm.staging.chunk_bytes() / ncast_dtype_bytes(dtype);
}

Send::Send(Communicator& comm, channel::RankSet peers, const CallTag& tag, const void* values, uint64_t elems,
           uint64_t elems_per_chunk)
    : comm_(comm),
      peers_(peers),
      waiting_(peers),
      tag_(tag),
      values_(static_cast<const std::byte*>(values)),
      chunks_(elems, elems_per_chunk) {}

ncast_status Send::advance(bool* progressed) {
  for (channel::RankSet left = waiting_; left != 0; left &= left - 1) {
    const int peer = std::countr_zero(left);
    const channel::Slot slot = comm_.world->to(peer).next_free();
    if (!slot) continue;
    if (ncast_status status = put(peer, slot)) return status;
    waiting_ &= ~channel::rank_bit(peer);
    *progressed = true;
  }
  if (waiting_ == 0) {
    chunks_.next();
    waiting_ = peers_;
    frame_bytes_ = 0;
  }
  return NCAST_OK;
}

ncast_status Send::put(int peer, const channel::Slot& slot) {
  tag_.first_elem = chunks_.first();
  tag_.chunk_elems = chunks_.elems();
  const uint64_t raw_bytes = chunks_.elems() * value_bytes(tag_);
  const std::byte* values = raw_bytes == 0 ? nullptr : values_ + chunks_.first() * value_bytes(tag_);
  const size_t capacity_bytes = comm_.world->to(peer).payload_capacity_bytes();
  size_t payload_bytes = 0;
  if (raw_bytes == 0) {
    // An empty chunk has a tag but no payload.
  } else if (std::has_single_bit(peers_) || codec_of(tag_) == NCAST_CODEC_RAW) {
    if (ncast_status status = encode(tag_, values, chunks_.elems(), slot.payload, capacity_bytes, &payload_bytes)) {
      return status;
    }
    if (ncast_status status = keep({slot.payload, payload_bytes})) return status;
  } else {
    // Several peers: encode into the staging buffer once, and copy the frame to each peer as it has a free slot.
    Staging& staging = comm_.staging;
    if (frame_bytes_ == 0) {
      if (ncast_status status =
              encode(tag_, values, chunks_.elems(), staging.frame(), staging.frame_capacity_bytes(), &frame_bytes_)) {
        return status;
      }
      if (ncast_status status = keep({staging.frame(), frame_bytes_})) return status;
    }
    payload_bytes = frame_bytes_;
    std::memcpy(slot.payload, staging.frame(), payload_bytes);
  }
  slot.header->tag = pack(tag_);
  slot.header->payload_bytes = payload_bytes;
  comm_.world->to(peer).put();
  comm_.count_sent(tag_.operation, raw_bytes, payload_bytes);
  return NCAST_OK;
}

ncast_status Send::keep(const ReceivedChunk& encoded) {
  if (decoded_ == nullptr) return NCAST_OK;
  return decode_chunk(encoded, tag_, chunks_.elems(), comm_.rank(), decoded_ + chunks_.first() * value_bytes(tag_));
}

ncast_status next_chunk(Communicator& comm, int peer, const CallTag& expected, const Chunks& chunks,
                        ReceivedChunk* chunk) {
  *chunk = {};
  channel::RingReceiver& ring = comm.world->from(peer);
  const channel::Slot slot = ring.next_filled();
  if (!slot) return NCAST_OK;
  const CallTag tag = unpack(slot.header->tag);
  if (!same_call(tag, expected)) {
    return mismatch(comm, expected, peer, tag);
  }
  if (tag.first_elem != chunks.first() || tag.chunk_elems != chunks.elems() ||
      slot.header->payload_bytes > ring.payload_capacity_bytes()) {
    return fail(NCAST_CORRUPT, "rank %d received an unexpected chunk from rank %d: values %" PRIu64 " to %" PRIu64,
                comm.rank(), peer, tag.first_elem, tag.first_elem + tag.chunk_elems);
  }
  *chunk = {slot.payload, slot.header->payload_bytes};
  return NCAST_OK;
}

ncast_status decode_chunk(const ReceivedChunk& chunk, const CallTag& tag, uint64_t elems, int peer, void* values) {
  const uint64_t raw_bytes = elems * value_bytes(tag);
  if (raw_bytes == 0) return NCAST_OK;
  if (codec_of(tag) == NCAST_CODEC_RAW) {
    if (chunk.payload_bytes != raw_bytes) {
      return fail(NCAST_CORRUPT, "a chunk from rank %d has %" PRIu64 " bytes instead of %" PRIu64, peer,
                  chunk.payload_bytes, raw_bytes);
    }
    std::memcpy(values, chunk.payload, raw_bytes);
    return NCAST_OK;
  }
  ncast_frame_info info = {};
  info.struct_bytes = sizeof info;
  if (ncast_status status = ncast_decode(chunk.payload, chunk.payload_bytes, 0, values, raw_bytes, &info)) {
    return status;
  }
  if (info.elems == elems && info.dtype == dtype_of(tag)) return NCAST_OK;
  return fail(NCAST_CORRUPT, "a frame from rank %d holds %" PRIu64 " values instead of %" PRIu64, peer, info.elems,
              elems);
}

CompareCalls::CompareCalls(Communicator& comm, const CallTag& tag)
    : comm_(comm), tag_(tag), waiting_(all_peers(comm)) {}

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

Receive::Receive(Communicator& comm, int peer, const CallTag& tag, void* values, uint64_t elems,
                 uint64_t elems_per_chunk)
    : comm_(comm), peer_(peer), tag_(tag), values_(static_cast<std::byte*>(values)), chunks_(elems, elems_per_chunk) {}

ncast_status Receive::advance(bool* progressed) {
  ReceivedChunk chunk;
  if (ncast_status status = next_chunk(comm_, peer_, tag_, chunks_, &chunk)) return status;
  if (chunk.payload == nullptr) return NCAST_OK;
  std::byte* values = values_ == nullptr ? nullptr : values_ + chunks_.first() * value_bytes(tag_);
  if (ncast_status status = decode_chunk(chunk, tag_, chunks_.elems(), peer_, values)) return status;
  comm_.world->from(peer_).release();
  chunks_.next();
  *progressed = true;
  return NCAST_OK;
}

}  // namespace narrowcast::executor::host
