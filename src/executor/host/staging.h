// Divides a rank's scratch budget between the rings to its peers and private buffers for one chunk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "channel/host/ring.h"
#include "narrowcast/comm.h"

namespace narrowcast::executor::host {

// 8 ranks fit into 64 MB, the usual size of /dev/shm in containers.
inline constexpr size_t default_scratch_bytes = 4 << 20;
inline size_t scratch_bytes_of(const ncast_comm_config& config) {
  return config.scratch_bytes != 0 ? config.scratch_bytes : default_scratch_bytes;
}

struct StagingShape {
  size_t chunk_bytes = 0;  // the maximum of raw values in one slot
  channel::RingShape rings = {};

  // Chooses the largest chunks and deepest rings that fit the budget. Error: INVALID_ARGUMENT, with the minimum budget.
  static ncast_status choose(size_t scratch_bytes, int ranks, StagingShape* shape);

  // The bytes that a rank uses of its budget.
  size_t bytes(int ranks) const;
};

// The maximum size of a chunk's frame over all codecs and value types, rounded up to cache lines.
size_t payload_bound(size_t chunk_bytes);

// The private buffers. Used by one call of the communicator at a time.
class Staging {
 public:
  explicit Staging(const StagingShape& shape);

  size_t chunk_bytes() const { return chunk_bytes_; }
  uint64_t slots() const { return slots_; }     // of a ring
  std::byte* frame() { return frame_.data(); }  // holds any frame of a chunk
  size_t frame_capacity_bytes() const { return frame_.size(); }
  std::byte* values() { return values_.data(); }            // holds the values of a chunk
  std::byte* accumulator() { return accumulator_.data(); }  // holds chunk_bytes of accumulators

 private:
  size_t chunk_bytes_;
  uint64_t slots_;
  std::vector<std::byte> frame_;
  std::vector<std::byte> values_;
  std::vector<std::byte> accumulator_;
};

}  // namespace narrowcast::executor::host
