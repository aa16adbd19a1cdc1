#include "executor/host/staging.h"

#include <algorithm>

#include "codec/codec.h"
#include "status/error.h"

namespace narrowcast::executor::host {
namespace {

constexpr size_t largest_chunk_bytes = 256 << 10;
constexpr size_t smallest_chunk_bytes = 4 << 10;
constexpr uint64_t ring_depths[] = {4, 2};  // at least 2, so that one slot is filled while the other is emptied

}  // namespace

size_t payload_bound(size_t chunk_bytes) {
  size_t bound = chunk_bytes;
  for (const codec::Row& row : codec::rows())
    for (int dtype = 0; dtype < codec::dtype_count; ++dtype) {
      const auto type = static_cast<ncast_dtype>(dtype);
      bound = std::max(bound, ncast_bound(type, row.id, chunk_bytes / ncast_dtype_bytes(type)));
    }
  constexpr size_t line = channel::cache_line_bytes;
  return (bound + line - 1) / line * line;
}

size_t StagingShape::bytes(int ranks) const {
  const size_t all_rings = static_cast<size_t>(ranks - 1) * rings.ring_bytes();
  return all_rings + rings.payload_capacity_bytes + 2 * chunk_bytes;
}

ncast_status StagingShape::choose(size_t scratch_bytes, int ranks, StagingShape* shape) {
  for (size_t chunk = largest_chunk_bytes; chunk >= smallest_chunk_bytes; chunk /= 2) {
    for (const uint64_t depth : ring_depths) {
      *shape = {chunk, {depth, payload_bound(chunk)}};
      if (shape->bytes(ranks) <= scratch_bytes) return NCAST_OK;
    }
  }
  return fail(NCAST_INVALID_ARGUMENT, "scratch_bytes is %zu, but %d ranks need at least %zu", scratch_bytes, ranks,
              shape->bytes(ranks));
}

Staging::Staging(const StagingShape& shape)
    : chunk_bytes_(shape.chunk_bytes),
      slots_(shape.rings.slots),
      frame_(shape.rings.payload_capacity_bytes),
      values_(shape.chunk_bytes),
      accumulator_(shape.chunk_bytes) {}

}  // namespace narrowcast::executor::host
