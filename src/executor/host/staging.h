// How a rank's scratch budget is spent: slots of the rings to its peers, and private room for one chunk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "channel/host/ring.h"
#include "narrowcast/comm.h"

namespace narrowcast::executor::host {

struct StagingShape {
  size_t chunk_bytes = 0;  // of raw values, the most in one slot
  channel::RingShape rings = {};

  // The largest chunks and deepest rings that the budget allows. Error: INVALID_ARGUMENT says the least that would do.
  static ncast_status choose(size_t scratch_bytes, int ranks, StagingShape* shape);

  // That a rank uses of its budget.
  size_t bytes(int ranks) const;
};

// The private room. Used by one call of the communicator at a time.
class Staging {
 public:
  explicit Staging(const StagingShape& shape);

  size_t chunk_bytes() const { return chunk_bytes_; }
  std::byte* frame() { return frame_.data(); }  // room for any frame of a chunk
  size_t frame_capacity_bytes() const { return frame_.size(); }
  std::byte* values() { return values_.data(); }            // room for the values of a chunk
  std::byte* accumulator() { return accumulator_.data(); }  // room for chunk_bytes of accumulators

 private:
  size_t chunk_bytes_;
  std::vector<std::byte> frame_;
  std::vector<std::byte> values_;
  std::vector<std::byte> accumulator_;
};

}  // namespace narrowcast::executor::host
