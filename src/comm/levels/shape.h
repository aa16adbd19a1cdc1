// Where a rank of two levels is.
#pragma once

namespace narrowcast::comm {

// rank() == group * of_group + index.
struct LevelShape {
  int groups, of_group;  // of_group: the number of ranks in each group
  int group, index;
};

}  // namespace narrowcast::comm
