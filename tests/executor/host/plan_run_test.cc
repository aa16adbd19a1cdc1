// The host backend runs plans: those of the builders and others, with any order in which groups can advance.
#include <string_view>
#include <vector>

#include "doctest/doctest.h"
#include "executor/host/plan_calls.h"
#include "plan/builders/builders.h"
#include "plan/steps.h"
#include "support/sanitized.h"

namespace narrowcast::testing {
namespace {

using plan::Plan;
using plan::builders::Request;

// Calls body(plan) for the plans of all builders.
template <typename Body>
void for_each_plan(const std::vector<int>& rank_counts, ncast_codec codec, const Body& body) {
  for (const plan::builders::Row& row : plan::builders::rows()) {
    const std::string_view name = row.name;
    for (const auto& description : operation::descriptions) {
      if (!row.suits(description.operation)) continue;
      for (const int ranks : rank_counts) {
        if (name == "halving_doubling" && (ranks & (ranks - 1)) != 0) continue;
        const int places = name == "two_level" && ranks % 2 == 0 ? ranks / 2 : 1;
        Plan plan;
        const Request request = {.operation = description.operation,
                                 .ranks = ranks,
                                 .root = ranks / 2,
                                 .codec = codec,
                                 .ranks_per_node = places};
        REQUIRE(plan::builders::build(name, request, &plan) == NCAST_OK);
        body(plan);
      }
    }
  }
}

TEST_CASE("plans of all builders have the results that the operation defines") {
  // Allocating the default for each of the plans would take half of the time.
  constexpr size_t scratch_bytes = 512 << 10;
  const std::vector<size_t> counts =
      tests::sanitized ? std::vector<size_t>{0, 4099} : std::vector<size_t>{0, 1, 7, 131, 4099};
  for_each_plan({2, 3, 4}, NCAST_CODEC_RAW, [&](const Plan& plan) { check_plan(plan, counts, scratch_bytes); });
  // Threads of many ranks take long on few cores.
  for_each_plan({5, 8}, NCAST_CODEC_RAW, [](const Plan& plan) { check_plan(plan, {131}, scratch_bytes); });
}

TEST_CASE("plans run in many micro-batches, encoded") {
  const std::vector<int> rank_counts = tests::sanitized ? std::vector{4} : std::vector{2, 3, 4};
  for_each_plan(rank_counts, NCAST_CODEC_WINDOW, [](const Plan& plan) { check_plan(plan, {13, 20'011}, 256 << 10); });
}

TEST_CASE("plans for several hosts have the results that the operation defines") {
  std::vector<std::vector<int>> lists = {{0, 0, 1}};
  if (!tests::sanitized) lists.insert(lists.end(), {{0, 0, 1, 1}, {0, 1, 1, 1, 0}});
  for (const std::vector<int>& hosts : lists) {
    for (const auto& description : operation::descriptions) {
      if (!plan::has_plans(description.operation)) continue;
      for (const ncast_codec codec : {NCAST_CODEC_RAW, NCAST_CODEC_WINDOW}) {
        Plan plan;
        const Request request = {.operation = description.operation,
                                 .ranks = static_cast<int>(hosts.size()),
                                 .root = 1,
                                 .codec = codec,
                                 .hosts = hosts,
                                 .codec_within = NCAST_CODEC_RAW,
                                 .partial_sums = true};
        REQUIRE(plan::builders::build("two_level", request, &plan) == NCAST_OK);
        check_plan(plan, {0, 7, 20'011}, 512 << 10);
      }
    }
  }
}

TEST_CASE("plans have the same results whatever the order in which groups advance") {
  const std::vector<int> rank_counts = tests::sanitized ? std::vector{3} : std::vector{2, 3, 4};
  for (uint32_t seed = 1; seed <= (tests::sanitized ? 1 : 3); ++seed) {
    const RandomInterleaving interleaving(seed);
    for_each_plan(rank_counts, NCAST_CODEC_RAW, [](const Plan& plan) { check_plan(plan, {5, 3'001}, 128 << 10); });
  }
}

}  // namespace
}  // namespace narrowcast::testing
