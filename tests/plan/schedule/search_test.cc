#include "plan/schedule/search.h"

#include <memory>
#include <optional>
#include <utility>

#include "doctest/doctest.h"
#include "plan/lower/lower.h"
#include "plan/schedule/split.h"
#include "plan/verify/verify.h"
#include "schedules.h"
#include "support/plans.h"

namespace narrowcast::plan::schedule {
namespace {

// What the search for the same number of groups on each rank finds in two instances of a plan, which has as many groups
// as possible before.
Result even_result(Plan plan) {
  const simulate::Machine machine = test_machine();
  const Options options = options_of(64'000'000);
  std::optional<Plan> parts = split(plan, predict(plan, machine, options), true);
  REQUIRE(parts);
  if (!parts) return {};
  plan = *std::move(parts);
  Result result;
  Best best(plan, predict(plan, machine, options), machine, options, &result);
  plan.instances = 2;
  REQUIRE(lower::lower(plan, &plan) == NCAST_OK);
  const simulate::Prediction prediction = predict(plan, machine, options);
  parts = split(plan, prediction, true);
  REQUIRE(parts);
  if (!parts) return result;
  const auto divided = std::make_shared<const Divided>(std::move(*parts), machine, options.simulation, 2);
  CountSearch counts(best.limit_us(), best.max_groups());
  Nearest nearest;
  ListSearch(divided, prediction, 2, &counts, &nearest, &best).even();
  return result;
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

}  // namespace
}  // namespace narrowcast::plan::schedule
