// Which function of a gather kernel runs a shape.
#pragma once

#include "store/cuda/gather_arguments.h"

namespace narrowcast::store::cuda {

// functions: those of kernels.h, or the same for the simulation; false if there is none. has_stages: of the rows.
template <typename Functions>
const auto& function_for(const Functions& functions, const GatherShape& shape, bool has_stages) {
  if (shape.team_warps != 1) return functions.for_teams;
  if (shape.has_lane_rows != 0) return functions.for_lanes;
  if (!has_stages && shape.tile_lanes == 2 && functions.for_twos) return functions.for_twos;
  if (!has_stages && shape.tile_lanes == 8 && functions.for_eights) return functions.for_eights;
  return functions.for_warps;
}

}  // namespace narrowcast::store::cuda
