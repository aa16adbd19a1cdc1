// Which ranks form two levels.
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "environment/level_shape.h"

namespace narrowcast::testing {
namespace {

// "3x8": groups x ranks of each. hosts: the number of ranks on each.
std::string counts_of(const std::vector<size_t>& hosts) {
  std::vector<uint64_t> of_ranks;
  for (size_t host = 0; host < hosts.size(); ++host) of_ranks.insert(of_ranks.end(), hosts[host], host);
  const char* why_not = nullptr;
  const auto counts = environment::level_counts(of_ranks, &why_not);
  return counts ? std::to_string(counts->groups) + "x" + std::to_string(counts->of_group) : why_not;
}

TEST_CASE("groups are hosts, or as small as possible") {
  CHECK(counts_of({2, 2}) == "2x2");
  CHECK(counts_of({8, 8, 8}) == "3x8");
  CHECK(counts_of(std::vector<size_t>(16, 4)) == "16x4");
  CHECK(counts_of(std::vector<size_t>(9, 1)) == "3x3");
  CHECK(counts_of(std::vector<size_t>(16, 1)) == "8x2");
  CHECK(counts_of({16}) == "8x2");
  CHECK(counts_of({5, 7}) == "6x2");
  CHECK(counts_of({16, 16}) == "8x4");
  const std::string no_hosts = "the hosts have different numbers of ranks, or one each, or are one host";
  for (const auto& hosts : {std::vector<size_t>{8}, {1, 1, 1}, {3, 2}}) CHECK(counts_of(hosts) == no_hosts);
  for (const auto& hosts : {std::vector<size_t>{11}, {8, 3}, std::vector<size_t>(11, 5)})
    CHECK(counts_of(hosts) == "the number of ranks has a prime factor above 7");
  CHECK(counts_of(std::vector<size_t>(128, 8)) == "128x8");
  CHECK(counts_of(std::vector<size_t>(129, 8)) == "there are more than 1024 ranks");
}

}  // namespace
}  // namespace narrowcast::testing
