// Divides a rank's items among the warps of a kernel that works by packets.
#pragma once

#include <vector>

#include "executor/cuda/generated/program.h"

namespace narrowcast::executor::cuda::generated {

// A strand is what one warp executes for a row, in an order in which all ranks can execute their strands.
using RankStrands = std::vector<std::vector<const Item*>>;
RankStrands strands_of(const Program& program, const RankProgram& rank);

}  // namespace narrowcast::executor::cuda::generated
