#include "plan/schedule/counts.h"

#include <algorithm>
#include <vector>

#include "doctest/doctest.h"
#include "schedules.h"

namespace narrowcast::plan::schedule {
namespace {

using Counts = std::vector<uint32_t>;

// Rank 0 has two thirds of the work of rank 1, which is always busy.
Trial uneven_trial() { return {{1, 1}, {60, 90}, 90, 1 - 60.0 / 90}; }

TEST_CASE("ranks get as many groups as keep all of them busy") {
  CountSearch search(100, 8);
  search.add(uneven_trial());
  // In a third of the time two and three groups are always busy.
  bool is_found = false;
  for (int i = 0; i < 3; ++i) is_found |= search.next() == Counts{2, 3};
  CHECK(is_found);
}

TEST_CASE("a stalled schedule gets more groups than its work needs") {
  // Both ranks are busy for 80% of a time that is too long. Five groups would do if they were always busy.
  CountSearch search(100, 8);
  search.add({{5, 5}, {480, 480}, 120, 0.2});
  CHECK(search.next() == Counts{5, 5});
  CHECK(search.next() == Counts{6, 6});
}

TEST_CASE("numbers of groups are returned once, and again for another division of the work") {
  CountSearch search(100, 3);
  CHECK_FALSE(search.next().has_value());
  search.add(uneven_trial());
  std::vector<Counts> found;
  while (auto counts = search.next()) {
    CHECK(std::ranges::all_of(*counts, [](uint32_t count) { return count >= 1 && count <= 3; }));
    CHECK(std::ranges::find(found, *counts) == found.end());
    found.push_back(std::move(*counts));
  }
  CHECK(found.size() > 1);
  search.begin_again();
  CHECK(search.next() == found.front());
}

TEST_CASE("ranks get numbers of groups that keep all of them busy, even if these are more than necessary") {
  // Two groups of rank 0 and one of rank 1 would do, but those of rank 0 would be idle for a quarter of the time.
  const Result result = schedule_of(gather_with_uneven_ranks(), 0, 1);
  CHECK(result.before.groups == 6);
  CHECK(result.before.most_idle > 0.7);
  CHECK(result.fewest_groups == 3);
  CHECK(result.after.most_idle <= 0.22);
  CHECK(result.after.groups == 5);
  CHECK(result.after.microseconds < 0.6 * result.before.microseconds);
}

}  // namespace
}  // namespace narrowcast::plan::schedule
