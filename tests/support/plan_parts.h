// What the files that make plans for tests share.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/plans.h"

namespace narrowcast::plan::verify::testing {

// channels[{a, b}] is the channel from a to b.
using Pairs = std::map<std::pair<int, int>, uint32_t>;

template <typename Add>
Pairs connect_all(Plan& plan, Add add_one) {
  Pairs pairs;
  for (int a = 0; a < plan.rank_count(); ++a)
    for (int b = 0; b < plan.rank_count(); ++b)
      if (a != b) pairs[{a, b}] = add_one(a, b);
  return pairs;
}
inline Pairs connect_all_rings(Plan& plan, uint32_t depth = 1) {
  return connect_all(plan, [&](int a, int b) { return add_ring(plan, a, b, depth); });
}
inline Pairs connect_all_memory(Plan& plan) {
  return connect_all(plan, [&](int a, int b) { return add_memory(plan, a, b); });
}

// The channels from a rank to all others, or from all others to it.
inline std::vector<uint32_t> outgoing(const Pairs& pairs, int rank) {
  std::vector<uint32_t> channels;
  for (const auto& [pair, channel] : pairs)
    if (pair.first == rank) channels.push_back(channel);
  return channels;
}
inline std::vector<uint32_t> incoming(const Pairs& pairs, int rank) {
  std::vector<uint32_t> channels;
  for (const auto& [pair, channel] : pairs)
    if (pair.second == rank) channels.push_back(channel);
  return channels;
}

inline uint32_t u(int rank) { return static_cast<uint32_t>(rank); }

inline std::string named(const char* name, int ranks) {
  return std::string(name) + ", " + std::to_string(ranks) + " ranks";
}

}  // namespace narrowcast::plan::verify::testing
