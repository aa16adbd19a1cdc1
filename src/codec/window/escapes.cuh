// Iterates over the escapes of a block (the values outside the window) with one warp.
#pragma once

#include <cstdint>

#include "../../device/warp.cuh"
#include "format.h"
#include "parts.cuh"

namespace narrowcast::codec::window {

// Positions of one batch of escapes, in shared memory of the warp; 4-byte aligned.
using EscapeList = uint16_t[192];

// Up to two consecutive escapes, which one lane visits.
struct EscapePair {
  uint32_t number;     // index of the pair within the block
  bool has[2];         // false after the last escape
  uint32_t offset[2];  // byte offset of the escape's value in the block; that of the first value if has[i] is false
};

// Which escapes of the warp's current pairs have a far token.
struct FarEscapes {
  uint32_t lanes[2];  // masks of the lanes whose first and whose second escape is far

  __device__ static FarEscapes among(const bool (&is_far)[2]) {
    return {{__ballot_sync(device::all_lanes, is_far[0]), __ballot_sync(device::all_lanes, is_far[1])}};
  }
  __device__ uint32_t count() const { return __popc(lanes[0]) + __popc(lanes[1]); }
  // The number of far escapes before escape `i` of this lane's pair.
  __device__ uint32_t before(int i, int lane) const {
    const uint32_t lower = (1u << lane) - 1;
    return __popc(lanes[0] & lower) + __popc(lanes[1] & lower) + (i == 1 ? lanes[0] >> lane & 1 : 0);
  }
};

template <ValueType Type>
class Escapes {
  static constexpr int groups = Type.groups();

 public:
  // Called by the whole warp. escaped[group]: which of this lane's values are escapes, as bit 8 * byte + word.
  __device__ explicit Escapes(const uint32_t (&escaped)[groups]) {
    constexpr uint32_t part = groups == 1 ? 0xffff : 0xffffffff;
#pragma unroll
    for (int run = 0; run < runs; ++run) {
      runs_[run] = escaped[run % groups] & part << 16 * (run / groups);
      own_count_ += __popc(runs_[run]);
    }
    count_ = __reduce_add_sync(device::all_lanes, own_count_);
  }
  __device__ uint32_t count() const { return count_; }

  // The whole warp calls visit(EscapePair) for all escapes in order, 64 at a time. Each lane first lists its own
  // escapes; the lanes then share the list evenly. Latency dominates, so short work is done unconditionally instead of
  // being skipped by a branch.
  template <typename Visit>
  __device__ void for_each(EscapeList& list, int lane, Visit visit) const {
    constexpr uint32_t capacity = sizeof list / sizeof *list;
    static_assert(capacity % 64 == 0);  // every lane reads the list without a bounds check
    // An entry of the list: the lane from bit 4 up (so that it is already a byte offset of a 16-byte vector), the bit
    // number of the value from bit 9 up, the group from bit 14 up.
    static_assert(groups <= 4 && vector_bytes == 1 << 4);
    const uint32_t offset_of_bit =
        device::value_offset<Type.value_bytes>(0, lane % 8 * 4 + lane / 8, 0);  // for bit number `lane`
    // The index in the block of each run's first escape.
    uint32_t first[runs];
    uint32_t longest = 0;
    first[0] = device::inclusive_scan(own_count_) - own_count_;
#pragma unroll
    for (int run = 0; run < runs; ++run) {
      const uint32_t length = __popc(runs_[run]);
      if (run + 1 < runs) first[run + 1] = first[run] + length;
      longest = max(longest, length);
    }
    longest = __reduce_max_sync(device::all_lanes, longest);
    for (uint32_t begin = 0; begin < count_; begin += capacity) {
      uint32_t left[runs], index[runs];
#pragma unroll
      for (int run = 0; run < runs; ++run) {
        left[run] = runs_[run];
        index[run] = first[run] - begin;  // wraps around for escapes of earlier batches
      }
#pragma unroll 1
      for (uint32_t step = 0; step < longest; ++step) {
#pragma unroll
        for (int run = 0; run < runs; ++run) {
          const uint32_t rest = left[run] & (left[run] - 1);
          const uint32_t where = device::highest_bit(left[run] ^ rest) * 512 + (lane * 16 + run % groups * 16384);
          if (left[run] != 0 && index[run] < capacity) list[index[run]] = static_cast<uint16_t>(device::opaque(where));
          left[run] = rest;
          ++index[run];
        }
      }
      __syncwarp();
      const uint32_t listed = min(count_ - begin, capacity);
#pragma unroll 1  // few iterations; keeps the code small enough for the instruction cache
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
  // Within a run, finding an escape depends on the previous one. A lane therefore lists its escapes in two or more
  // independent runs at a time: one run for each group, or for each half if there is only one group.
  static constexpr int runs = groups == 1 ? 2 : groups;
  uint32_t runs_[runs];
  uint32_t own_count_ = 0, count_;
};

}  // namespace narrowcast::codec::window
