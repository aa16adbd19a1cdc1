// Where a rank of two levels is.
#pragma once

namespace narrowcast::comm {

// rank() == host * of_host + index.
struct LevelShape {
  int hosts, of_host;  // of_host: the number of ranks on each host
  int host, index;
};

}  // namespace narrowcast::comm
