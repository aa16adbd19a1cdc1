// The code of a group in a kernel that works by blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "executor/cuda/generated/program.h"

namespace narrowcast::executor::cuda::generated {

// The ends of a group's rings, by the thread that holds them: peer and ring.
struct Ends {
  std::vector<std::pair<int, uint32_t>> sending, receiving;
};
// Those to the next rank are first.
Ends find_ends(const Program& program, int rank, uint32_t group);

// Items with equal text differ in their words only.
struct ItemCode {
  std::vector<std::string> lines;  // refer to the words as q[i]
  std::vector<uint32_t> words;     // of the table
};
struct GroupCode {
  std::vector<ItemCode> items;
  std::string body;  // the items one after another, with a loop for consecutive ones with equal text
  std::vector<uint32_t> words;
  size_t loops = 0;  // in the body; an item on its own counts, too
};
// ends: of the group, at most 31 in each direction.
GroupCode code_of_group(const Program& program, int rank, uint32_t group, const Ends& ends);

}  // namespace narrowcast::executor::cuda::generated
