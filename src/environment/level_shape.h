// Which ranks form two levels: those of a host, and those with the same index on all hosts. The library creates such
// communicators; the drop-in leaves those that cannot have two levels to NCCL.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

namespace narrowcast::environment {

// The ranks of a communicator of GPUs of one level.
inline constexpr int most_ranks_of_level = 8;

// Rank number host * of_host + index is on this host. At least 2 of both, at most most_ranks_of_level.
struct LevelCounts {
  int hosts, of_host;
};

// hosts: of each rank, a number for its host. nullopt: they do not form two levels. *why: a string constant.
inline std::optional<LevelCounts> level_counts(const std::vector<uint64_t>& hosts, const char** why) {
  *why = "the hosts have different numbers of ranks, or ranks whose numbers are not consecutive";
  const auto ranks = static_cast<int>(hosts.size());
  const auto is_elsewhere = [&](uint64_t one) { return one != hosts[0]; };
  const auto of_host = static_cast<int>(std::ranges::find_if(hosts, is_elsewhere) - hosts.begin());
  if (ranks % of_host != 0) return std::nullopt;
  std::set<uint64_t> known;
  for (auto first = hosts.begin(); first != hosts.end(); first += of_host) {
    const bool is_one = std::all_of(first, first + of_host, [&](uint64_t one) { return one == *first; });
    if (!is_one || !known.insert(*first).second) return std::nullopt;
  }
  const LevelCounts counts{ranks / of_host, of_host};
  if (std::max(counts.hosts, counts.of_host) > most_ranks_of_level)
    *why = "there are more than 8 hosts, or more than 8 ranks on a host";
  else if (counts.hosts == 1 || of_host == 1)
    *why = "the ranks are on one host, or each is on a host of its own";
  else
    return counts;
  return std::nullopt;
}

}  // namespace narrowcast::environment
