// Which ranks form two levels.
#include <algorithm>
#include <string>
#include <vector>

#include "comm/levels/create.h"
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

// The levels of ranks on these hosts. processes: of the ranks of each host.
std::string chosen(environment::Levels setting, ncast_backend backend, const std::vector<int>& hosts,
                   int processes = 8) {
  std::vector<comm::RankPlace> places;
  for (const int host : hosts) {
    const auto number =
        static_cast<int>(std::ranges::count(places, static_cast<uint64_t>(host), &comm::RankPlace::host));
    places.push_back({static_cast<uint64_t>(host), {.pid = 100 + number % processes}});
  }
  const char* why_not = nullptr;
  const auto counts = comm::choose_levels(setting, backend, places, &why_not);
  return counts ? std::to_string(counts->groups) + "x" + std::to_string(counts->of_group) : why_not;
}

TEST_CASE("GPUs have two levels on hosts that are alike, and processes if a setting says so") {
  using environment::Levels;
  const std::string not_set = "NARROWCAST_LEVELS is not 2";
  CHECK(chosen(Levels::automatic, NCAST_BACKEND_CUDA, {0, 0, 1, 1}) == "2x2");
  CHECK(chosen(Levels::automatic, NCAST_BACKEND_CUDA, {0, 0, 0, 1, 1, 1}) == "2x3");
  CHECK(chosen(Levels::automatic, NCAST_BACKEND_CUDA, {0, 0, 1, 1, 2, 2, 3, 3}) == "4x2");
  CHECK(chosen(Levels::automatic, NCAST_BACKEND_HOST, {0, 0, 1, 1}) == not_set);
  CHECK(chosen(Levels::two, NCAST_BACKEND_HOST, {0, 0, 1, 1}) == "2x2");
  for (const ncast_backend backend : {NCAST_BACKEND_HOST, NCAST_BACKEND_CUDA})
    CHECK(chosen(Levels::one, backend, {0, 0, 1, 1}) == not_set);
  for (const auto& hosts : {std::vector{0, 0, 0, 0}, {0, 1, 2, 3}, {0, 1, 0, 1}, {0, 0, 0, 1}})
    CHECK(chosen(Levels::automatic, NCAST_BACKEND_CUDA, hosts) ==
          "the hosts have different numbers of ranks, or one each, or are one host");
}

TEST_CASE("up to 8 GPUs have one level if a process has several, unless a setting says otherwise") {
  using environment::Levels;
  CHECK(chosen(Levels::automatic, NCAST_BACKEND_CUDA, {0, 0, 1, 1}, 1) == "a process has several ranks");
  CHECK(chosen(Levels::two, NCAST_BACKEND_CUDA, {0, 0, 1, 1}, 1) == "2x2");
  CHECK(chosen(Levels::automatic, NCAST_BACKEND_CUDA, {0, 0, 0, 1, 1, 1, 2, 2, 2}, 1) == "3x3");
}

}  // namespace
}  // namespace narrowcast::testing
