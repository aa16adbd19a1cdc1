// Ranks compare their settings. The message names the ranks that differ from most others.
#include "bootstrap/shared_settings.h"

#include <string>
#include <vector>

#include "bootstrap/rank_list.h"
#include "doctest/doctest.h"

namespace narrowcast::testing {
namespace {

using bootstrap::check_same_settings;
using bootstrap::SharedSettings;

SharedSettings settings(uint64_t scratch_bytes, std::string_view path = "unset") {
  SharedSettings made;
  REQUIRE(made.add("scratch_bytes", scratch_bytes) == NCAST_OK);
  REQUIRE(made.add("NARROWCAST_PATH", path) == NCAST_OK);
  return made;
}

std::string mismatch(const std::vector<SharedSettings>& by_rank) {
  CHECK(check_same_settings(by_rank) == NCAST_MISMATCH);
  return ncast_last_error();
}

TEST_CASE("equal settings agree") {
  CHECK(check_same_settings(std::vector<SharedSettings>{}) == NCAST_OK);
  CHECK(check_same_settings(std::vector{settings(1)}) == NCAST_OK);
  CHECK(check_same_settings(std::vector{settings(1), settings(1), settings(1)}) == NCAST_OK);
}

TEST_CASE("the rank that differs from the majority is named with both values") {
  CHECK(mismatch({settings(3), settings(4), settings(4)}) == "scratch_bytes is 3 on rank 0, but 4 on ranks 1, 2");
  CHECK(mismatch({settings(4), settings(4), settings(4, "blocks")}) ==
        "NARROWCAST_PATH is blocks on rank 2, but unset on ranks 0, 1");
  CHECK(mismatch({settings(4), settings(3), settings(3), settings(4), settings(4)}) ==
        "scratch_bytes is 3 on ranks 1, 2, but 4 on ranks 0, 3, 4");
}

TEST_CASE("without a majority, the other ranks are compared with rank 0") {
  CHECK(mismatch({settings(4), settings(3)}) == "scratch_bytes is 3 on rank 1, but 4 on rank 0");
  CHECK(mismatch({settings(4), settings(3), settings(5)}) == "scratch_bytes is 5 on rank 2, but 4 on rank 0");
}

TEST_CASE("settings of another version differ") {
  CHECK(mismatch({settings(4), SharedSettings()}) == "scratch_bytes is unknown on rank 1, but 4 on rank 0");
  CHECK(settings(4).text().starts_with("the version of the library=" + std::string(ncast_version()) + "\n"));
}

TEST_CASE("too many settings are an error") {
  SharedSettings full;
  CHECK(full.add("name", std::string(300, 'x')) == NCAST_INTERNAL);
  CHECK(full.text() == SharedSettings().text());
}

TEST_CASE("lists of ranks are short") {
  CHECK(bootstrap::rank_list(std::vector<int>{}).empty());
  CHECK(bootstrap::rank_list(std::vector{2, 3}) == "2, 3");
  CHECK(bootstrap::rank_list(std::vector{0, 1, 2, 5, 7, 8, 9}) == "0-2, 5, 7-9");
  std::vector<int> odd;
  for (int rank = 1; rank < 1024; rank += 2) odd.push_back(rank);
  CHECK(bootstrap::rank_list(odd).size() < 200);
  CHECK(bootstrap::rank_list(odd).ends_with(", ..."));
}

}  // namespace
}  // namespace narrowcast::testing
