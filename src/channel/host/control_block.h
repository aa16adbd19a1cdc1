// What the ranks of a communicator share besides their lanes; the head of its segment. All zero bytes but for the
// fields that the creator sets.
#pragma once

#include <atomic>
#include <cstdint>

#include "bootstrap/shared_memory.h"
#include "channel/host/ring.h"

namespace narrowcast::channel {

inline constexpr int max_ranks = bootstrap::SegmentOwners::capacity;

// The first failure of any rank. It ends the calls of all.
struct FailureRecord {
  enum State : uint32_t { none = 0, writing = 1, published = 2 };
  std::atomic<uint32_t> state;
  uint32_t status;
  int32_t rank;
  char sentence[500];
};

// What a rank is doing, for the others to compare when they wait for it. Written by its rank alone; a reader that finds
// an odd or changed version has met a write and looks again later.
struct Post {
  static constexpr size_t words = tag_bytes / sizeof(uint64_t);
  std::atomic<uint64_t> version;
  std::atomic<uint64_t> word[words];
};

struct alignas(cache_line_bytes) Member {
  Doorbell bell;
  std::atomic<uint32_t> in_call;
  Post post;
};

struct ControlBlock {
  bootstrap::SegmentOwners owners;  // first: the sweeper reads it
  uint64_t ranks;
  LaneShape shape;
  std::atomic<uint64_t> joined_ranks;
  std::atomic<uint32_t> complete;  // all ranks have joined
  FailureRecord failure;
  Member member[max_ranks];
};

// Where everything lies: the control block, then the outgoing lanes of rank 0, of rank 1, ...
struct SegmentLayout {
  static constexpr uint64_t page_bytes = 4096;
  static constexpr uint64_t round_up(uint64_t bytes) { return (bytes + page_bytes - 1) / page_bytes * page_bytes; }

  uint64_t ranks;
  LaneShape shape;

  uint64_t control_bytes() const { return round_up(sizeof(ControlBlock)); }
  uint64_t rank_bytes() const { return round_up((ranks - 1) * shape.lane_bytes()); }
  uint64_t rank_offset(uint64_t rank) const { return control_bytes() + rank * rank_bytes(); }
  uint64_t total_bytes() const { return rank_offset(ranks); }
  uint64_t lane_offset(uint64_t from, uint64_t to) const {
    return rank_offset(from) + (to < from ? to : to - 1) * shape.lane_bytes();
  }
};

}  // namespace narrowcast::channel
