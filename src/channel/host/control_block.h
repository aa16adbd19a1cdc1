// The start of a communicator's segment: everything that its ranks share except the rings. The segment is zeroed, and
// the creator sets some of the fields.
#pragma once

#include <atomic>
#include <cstdint>

#include "bootstrap/shared_memory.h"
#include "bootstrap/shared_settings.h"
#include "channel/host/ring.h"

namespace narrowcast::channel {

inline constexpr int max_ranks = bootstrap::SegmentOwners::capacity;

// A set of ranks, one bit for each.
using RankSet = uint64_t;
inline constexpr RankSet rank_bit(int rank) { return RankSet{1} << rank; }

// The first failure of any rank. All ranks fail their calls because of it.
struct FailureRecord {
  enum State : uint32_t { none = 0, writing = 1, published = 2 };
  std::atomic<uint32_t> state;
  uint32_t status;
  int32_t rank;
  char message[500];
};

// A tag that one rank publishes to the others, guarded by a sequence lock. Only that rank stores it.
class PublishedTag {
 public:
  void store(const Tag& tag);
  // False if nothing has been stored yet, or if a store is in progress.
  bool load(Tag* tag) const;
  // Changes with every store; 0: nothing has been stored yet.
  uint64_t version() const { return version_.load(std::memory_order_acquire); }

 private:
  static constexpr size_t words = tag_bytes / sizeof(uint64_t);
  std::atomic<uint64_t> version_;  // odd during a store
  std::atomic<uint64_t> word_[words];
};

struct alignas(cache_line_bytes) Member {
  Doorbell bell;
  std::atomic<uint32_t> in_call;
  PublishedTag current;                // the call that the rank is executing
  PublishedTag collective;             // the last collective that the rank began
  bootstrap::SharedSettings settings;  // written before the rank is in `joined`
};

struct ControlBlock {
  // Changes with the layout of the segment.
  static constexpr uint64_t current_version = 0x3530746e6f63636eu;  // "nccont05"

  bootstrap::SegmentOwners owners;  // must be first: sweep_stale_segments() reads it
  uint64_t version;
  uint64_t ranks;
  std::atomic<RankSet> joined;
  std::atomic<uint32_t> complete;  // all ranks have joined, and the name of the segment is removed
  std::atomic<RankSet> ready;      // ranks whose rings exist
  FailureRecord failure;
  Member member[max_ranks];
};

// The layout of a segment: the control block, then the outgoing rings of rank 0, of rank 1, ...
struct SegmentLayout {
  static constexpr uint64_t page_bytes = 4096;
  static constexpr uint64_t round_up(uint64_t bytes) { return (bytes + page_bytes - 1) / page_bytes * page_bytes; }

  uint64_t ranks;
  RingShape shape;

  uint64_t control_bytes() const { return round_up(sizeof(ControlBlock)); }
  uint64_t rank_bytes() const { return round_up((ranks - 1) * shape.ring_bytes()); }
  uint64_t rank_offset(uint64_t rank) const { return control_bytes() + rank * rank_bytes(); }
  uint64_t total_bytes() const { return rank_offset(ranks); }
  uint64_t ring_offset(uint64_t from, uint64_t to) const {
    return rank_offset(from) + (to < from ? to : to - 1) * shape.ring_bytes();
  }
};

}  // namespace narrowcast::channel
