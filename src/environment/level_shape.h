// Which ranks form two levels: those of a group, and those with the same index in all groups. A group is a host, or
// else so many consecutive ranks. The library creates such communicators; the drop-in leaves others to NCCL.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

namespace narrowcast::environment {

// The most GPUs of a communicator of one level. Messages here and in the drop-in state this number.
inline constexpr int most_ranks_of_level = 8;
inline constexpr int most_ranks_of_levels = 1024;

// Rank number group * of_group + index is in this group. At least 2 of both. of_group <= most_ranks_of_level; more
// groups form two levels in turn.
struct LevelCounts {
  int groups, of_group;
};

// If every host has the same number of ranks, with consecutive numbers: this number. Otherwise 0.
inline int ranks_of_each_host(const std::vector<uint64_t>& hosts) {
  const auto is_elsewhere = [&](uint64_t one) { return one != hosts[0]; };
  const auto of_host = std::ranges::find_if(hosts, is_elsewhere) - hosts.begin();
  if (std::ssize(hosts) % of_host != 0) return 0;
  std::set<uint64_t> known;
  for (auto first = hosts.begin(); first != hosts.end(); first += of_host) {
    const bool is_one = std::all_of(first, first + of_host, [&](uint64_t one) { return one == *first; });
    if (!is_one || !known.insert(*first).second) return 0;
  }
  return static_cast<int>(of_host);
}

// hosts: of each rank, a number for its host. nullopt: they do not form two levels. *why: a string constant.
inline std::optional<LevelCounts> level_counts(const std::vector<uint64_t>& hosts, const char** why) {
  const auto ranks = static_cast<int>(hosts.size());
  int rest = ranks;
  for (const int prime : {2, 3, 5, 7})
    while (rest % prime == 0) rest /= prime;
  *why = "there are more than 1024 ranks";
  if (ranks > most_ranks_of_levels) return std::nullopt;
  *why = "the number of ranks has a prime factor above 7";
  if (rest != 1) return std::nullopt;
  const int of_host = ranks_of_each_host(hosts);
  if (of_host > 1 && of_host < ranks && of_host <= most_ranks_of_level) return LevelCounts{ranks / of_host, of_host};
  *why = "the hosts have different numbers of ranks, or one each, or are one host";
  if (ranks <= most_ranks_of_level) return std::nullopt;
  // The smallest group of which there are not too many, because codecs apply between groups; else the largest.
  int of_group = 0;
  for (int number = most_ranks_of_level; number > 1; --number)
    if (ranks % number == 0 && (of_group == 0 || ranks / number <= most_ranks_of_level)) of_group = number;
  return LevelCounts{ranks / of_group, of_group};
}

}  // namespace narrowcast::environment
