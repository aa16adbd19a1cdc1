#include "plan/schedule/search.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "plan/lower/lower.h"
#include "plan/schedule/split.h"
#include "plan/verify/verify.h"
#include "schedules.h"
#include "support/plans.h"

namespace narrowcast::plan::schedule {
namespace {

// A plan with as many groups as possible.
Plan divided(const Plan& plan) {
  const std::optional<Plan> parts = split(plan, predict(plan, test_machine(), options_of(64'000'000)), true);
  REQUIRE(parts);
  return parts.value_or(plan);
}

// What a search finds in instances of a plan.
template <typename Search>
Result result_of(Plan plan, uint32_t instances, Search search) {
  const simulate::Machine machine = test_machine();
  const Options options = options_of(64'000'000);
  Result result;
  Best best(plan, predict(plan, machine, options), machine, options, &result);
  plan.instances = instances;
  REQUIRE(lower::lower(plan, &plan) == NCAST_OK);
  const simulate::Prediction prediction = predict(plan, machine, options);
  const auto parts = std::make_shared<const Divided>(divided(plan), machine, options.simulation, instances);
  CountSearch counts(best.limit_us(), best.max_groups());
  Nearest nearest;
  ListSearch list_search(parts, prediction, instances, &counts, &nearest, &best);
  search(list_search);
  return result;
}

Result even_result(const Plan& plan) {
  return result_of(divided(plan), 2, [](ListSearch& search) { search.even(); });
}

// From so many groups of each rank, which would take too long.
Result climbed_result(const Plan& plan, uint32_t instances, uint32_t each) {
  const std::vector<uint32_t> groups(plan.ranks.size(), each);
  return result_of(plan, instances, [&](ListSearch& search) { search.climb({groups, {}, 1e9}); });
}

TEST_CASE("ranks that do the same can have the same number of groups") {
  const Result result = even_result(verify::testing::all_pairs_all_gather(4));
  CHECK(is_idle(result.before));
  CHECK_FALSE(is_idle(result.after));
  CHECK(result.after.groups < result.before.groups);
  CHECK(result.after.microseconds <= result.before.microseconds);
  CHECK(verify::verify(result.plan).verdict == verify::Verdict::proved);
  for (const Rank& rank : result.plan.ranks) CHECK(rank.groups.size() == result.plan.ranks[0].groups.size());
}

TEST_CASE("ranks with unequal work keep their groups if these would be idle in equal numbers") {
  const Result result = even_result(verify::testing::tree_broadcast(4, 0));
  CHECK(is_idle(result.before));
  CHECK(result.after.groups == result.before.groups);
  CHECK(result.after.most_idle == result.before.most_idle);
}

TEST_CASE("ranks that do the same get more groups together") {
  const Result result = climbed_result(divided(verify::testing::all_pairs_all_gather(4)), 2, 1);
  CHECK_FALSE(is_idle(result.after));
  CHECK(result.after.groups < result.before.groups);
  CHECK(result.after.microseconds <= result.before.microseconds);
  for (const Rank& rank : result.plan.ranks) CHECK(rank.groups.size() == result.plan.ranks[0].groups.size());
}

TEST_CASE("ranks with unequal work get more groups one at a time") {
  const Result result = climbed_result(gather_with_uneven_ranks(), 1, 2);
  CHECK(is_idle(result.before));
  CHECK_FALSE(is_idle(result.after));
  CHECK(result.plan.ranks[0].groups.size() == 3);
  CHECK(result.plan.ranks[1].groups.size() == 2);
}

}  // namespace
}  // namespace narrowcast::plan::schedule
