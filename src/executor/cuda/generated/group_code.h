// The code of a group in a kernel that works by blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "executor/cuda/generated/item_code.h"
#include "executor/cuda/generated/program.h"

namespace narrowcast::executor::cuda::generated {

// The ends of a group's rings, by the thread that holds them: peer and ring.
struct Ends {
  std::vector<std::pair<int, uint32_t>> sending, receiving;
};
// Those to the next rank are first.
Ends find_ends(const Program& program, int rank, uint32_t group);

// ends: of the group, at most 31 in each direction.
std::vector<ItemCode> code_of_group(const Program& program, int rank, uint32_t group, const Ends& ends);

}  // namespace narrowcast::executor::cuda::generated
