// Ranks that do the same at the same time.
#pragma once

#include <cstdint>
#include <vector>

namespace narrowcast::plan::simulate {

// Divides the ranks of a plan into sets, in which all do the same at the same time, so that one rank of each is
// simulated: what another one would send to it, it sends itself. Groups with equal numbers correspond to each other.
struct Orbits {
  std::vector<uint32_t> ranks;     // by rank, the simulated one of its set
  std::vector<uint32_t> channels;  // by channel, a number that the corresponding channels share

  bool is_simulated(size_t rank) const { return ranks[rank] == rank; }
};

}  // namespace narrowcast::plan::simulate
