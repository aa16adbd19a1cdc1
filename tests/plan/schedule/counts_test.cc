#include "plan/schedule/counts.h"

#include <algorithm>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "plan/json/json.h"
#include "plan/verify/verify.h"
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

// An all-gather of two ranks that also fill their scratch, which takes most of the time. The groups of rank 0 work for
// about 24, 4, 4 and 4 copies of both chunks, those of rank 1 for 12 and 11.
Plan gather_with_uneven_ranks() {
  const auto at = [](const char* buffer, uint32_t chunk) {
    return std::string(R"({"buffer": ")") + buffer + R"(", "chunk": )" + std::to_string(chunk) + "}";
  };
  const auto ring = [](int number) { return "{\"channel\": " + std::to_string(number) + "}"; };
  const auto copy = [](const std::string& from, const std::string& to) {
    return R"({"step": "copy", "count": 2, "from": [)" + from + "], \"to\": [" + to + "]}";
  };
  const auto rank = [&](int own, uint32_t first, const std::vector<uint32_t>& others) {
    uint32_t scratch = 0;
    const auto copies = [&](uint32_t count) {
      std::string steps;
      for (uint32_t i = 0; i < count; ++i, scratch += 2)
        steps += (i == 0 ? "" : ", ") + copy(at("input", 0), at("scratch", scratch));
      return steps;
    };
    const int other = 1 - own;
    std::string groups = "{\"steps\": [" + copy(at("input", 0), ring(own) + ", " + at("output", 2 * own)) + ", " +
                         copy(ring(other), at("output", 2 * other)) + ", " + copies(first) + "]}";
    for (uint32_t count : others) groups += ", {\"steps\": [" + copies(count) + "]}";
    return "{\"scratch_chunks\": " + std::to_string(scratch) + ", \"groups\": [" + groups + "]}";
  };
  Plan plan;
  const ncast_status status =
      json::read(R"({"narrowcast_plan": 1, "operation": "all_gather", "chunks": 2, "in_place": "no", "channels": [
                    {"kind": "ring", "from": 0, "to": 1, "depth": 2}, {"kind": "ring", "from": 1, "to": 0, "depth": 2}],
                    "ranks": [)" +
                     rank(0, 20, {4, 4, 4}) + ", " + rank(1, 8, {11}) + "]}",
                 &plan);
  REQUIRE_MESSAGE(status == NCAST_OK, ncast_last_error());
  REQUIRE(verify::verify(plan).verdict == verify::Verdict::proved);
  return plan;
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
