// The gather kernels. Parameter: GatherArguments. One CTA per SM, of GatherShape::warps warps.
#pragma once

#include <cstdint>

#include "narrowcast/types.h"
#include "store/cuda/gather_arguments.h"
#include "store/cuda/shape.h"

namespace narrowcast::store::cuda {

struct GatherKernel {
  // The functions of a kernel; NULL if there is none.
  struct Functions {
    const void* for_warps;
    const void* for_teams;   // if team_warps is greater than 1. Rows have no zero map
    const void* for_lanes;   // if has_lane_rows. Rows have neither stage
    const void* for_twos;    // if tile_lanes is 2 and rows have neither stage; NULL: for_warps
    const void* for_eights;  // the same if it is 8
  };
  uint32_t staged_bytes;  // of a decoded element; 0 if rows are not coded
  Functions uncached;     // without a cache
  Functions cached;       // if Selection::cached has slots
};

GatherKernel raw_kernel();
GatherKernel plain_kernel(uint32_t elem_bytes);
GatherKernel invariant_kernel(uint32_t chunk_bytes, bool has_stages);
// low_bits: of a value, removed by the trim.
GatherKernel window_kernel(ncast_dtype dtype, uint32_t low_bits);

}  // namespace narrowcast::store::cuda
