// Iterates over the escapes of a block, its values outside the window, with one warp.
#pragma once

#include <cstdint>

#include "../../device/warp.cuh"
#include "format.h"
#include "parts.cuh"

namespace narrowcast::codec::window {

// Positions of escapes, a batch at a time; shared memory of the warp, 4-byte aligned.
using EscapeList = uint16_t[192];

// Up to two escapes that a lane visits: neighbours in their order.
struct EscapePair {
  uint32_t number;     // of the pair
  bool has[2];         // false past the last escape
  uint32_t offset[2];  // of their values in the block, in bytes; of its first value if there is no escape
};

// Which escapes of the warp's current pairs are far.
struct FarEscapes {
  uint32_t lanes[2];  // lanes whose first is far, lanes whose second is

  __device__ static FarEscapes among(const bool (&is_far)[2]) {
    return {{__ballot_sync(device::all_lanes, is_far[0]), __ballot_sync(device::all_lanes, is_far[1])}};
  }
  __device__ uint32_t count() const { return __popc(lanes[0]) + __popc(lanes[1]); }
  // How many far escapes come before this lane's `i`th.
  __device__ uint32_t before(int i, int lane) const {
    const uint32_t lower = (1u << lane) - 1;
    return __popc(lanes[0] & lower) + __popc(lanes[1] & lower) + (i == 1 ? lanes[0] >> lane & 1 : 0);
  }
};

template <ValueType Type>
class Escapes {
  static constexpr int groups = Type.groups();

 public:
  // escaped: for each group, which of this lane's values are escapes: bit 8 * byte + word. The whole warp calls.
  __device__ explicit Escapes(const uint32_t (&escaped)[groups]) {
    constexpr uint32_t part = groups == 1 ? 0xffff : 0xffffffff;
#pragma unroll
    for (int run = 0; run < runs; ++run) {
      runs_[run] = escaped[run % groups] & part << 16 * (run / groups);
      of_lane_ += __popc(runs_[run]);
    }
    count_ = __reduce_add_sync(device::all_lanes, of_lane_);
  }
  __device__ uint32_t count() const { return count_; }

  // The whole warp visits 64 escapes at a time, in order: visit(EscapePair). Each lane lists its own escapes, and all
  // lanes share the work on them evenly. Latency dominates, so short work is done unconditionally rather than branched
  // around.
  template <typename Visit>
  __device__ void for_each(EscapeList& list, int lane, Visit visit) const {
    constexpr uint32_t capacity = sizeof list / sizeof *list;
    static_assert(capacity % 64 == 0);  // all lanes may read
    // A listed escape: lane at 4 (where it counts vectors), bit at 9, group at 14.
    static_assert(groups <= 4 && vector_bytes == 1 << 4);
    const uint32_t offset_of_bit = value_offset<Type>(0, lane % 8 * 4 + lane / 8, 0);  // this lane's number as a bit
    // The number of each run's first escape.
    uint32_t first[runs];
    uint32_t longest = 0;
    first[0] = device::inclusive_scan(of_lane_) - of_lane_;
#pragma unroll
    for (int run = 0; run < runs; ++run) {
      const uint32_t length = __popc(runs_[run]);
      if (run + 1 < runs) first[run + 1] = first[run] + length;
      longest = max(longest, length);
    }
    longest = __reduce_max_sync(device::all_lanes, longest);
    for (uint32_t begin = 0; begin < count_; begin += capacity) {
      uint32_t left[runs], place[runs];
#pragma unroll
      for (int run = 0; run < runs; ++run) {
        left[run] = runs_[run];
        place[run] = first[run] - begin;  // wraps for escapes of earlier batches
      }
#pragma unroll 1
      for (uint32_t step = 0; step < longest; ++step) {
#pragma unroll
        for (int run = 0; run < runs; ++run) {
          const uint32_t rest = left[run] & (left[run] - 1);
          const uint32_t where = device::highest_bit(left[run] ^ rest) * 512 + (lane * 16 + run % groups * 16384);
          if (left[run] != 0 && place[run] < capacity) list[place[run]] = static_cast<uint16_t>(device::opaque(where));
          left[run] = rest;
          ++place[run];
        }
      }
      __syncwarp();
      const uint32_t listed = min(count_ - begin, capacity);
#pragma unroll 1  // few iterations, and the code stays in the instruction cache
      for (uint32_t at = 0; at < listed; at += 64) {
        const uint32_t own = at + 2 * lane;
        EscapePair pair{(begin + own) / 2, {own < listed, own + 1 < listed}, {}};
        const uint32_t two = reinterpret_cast<const uint32_t*>(list)[own / 2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const uint32_t where = pair.has[i] ? two >> 16 * i & 0xffff : 0;
          pair.offset[i] = __shfl_sync(device::all_lanes, offset_of_bit, where / 512) + (where & 31 * 16) +
                           where / 16384 * (group_elems * Type.value_bytes);
        }
        visit(pair);
      }
      __syncwarp();
    }
  }

 private:
  // A lane lists its escapes in two or more independent runs at once, because within a run each is found after the one
  // before: one run for each group, or for each half of the only group.
  static constexpr int runs = groups == 1 ? 2 : groups;
  uint32_t runs_[runs];
  uint32_t of_lane_ = 0, count_;
};

}  // namespace narrowcast::codec::window
