#include "plan/schedule/improve.h"

#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "plan/json/json.h"
#include "plan/schedule/split.h"
#include "plan/verify/verify.h"
#include "schedules.h"

namespace narrowcast::plan::schedule {
namespace {

// An all-gather of two ranks that also copy to their scratch. Both have ten units of different sizes, badly divided
// between two groups.
Plan badly_divided_gather() {
  const auto at = [](const char* buffer, int chunk, int count) {
    return R"({"buffer": ")" + std::string(buffer) + R"(", "chunk": )" + std::to_string(chunk) + "}" +
           (count > 0 ? R"(], "count": )" + std::to_string(count) : "");
  };
  const auto rank = [&](int own) {
    const std::string send = "{\"channel\": " + std::to_string(own) + "}";
    const std::string receive = "{\"channel\": " + std::to_string(1 - own) + "}";
    const auto copy = [&](int scratch, int count) {
      return R"({"step": "copy", "from": [)" + at("input", 0, 0) + "], \"to\": [" + at("scratch", scratch, count) + "}";
    };
    return R"({"scratch_chunks": 52, "groups": [{"steps": [{"step": "copy", "from": [)" + at("input", 0, 0) +
           "], \"to\": [" + send + ", " + at("output", 8 * own, 8) + R"(}, {"step": "copy", "from": [)" + receive +
           "], \"to\": [" + at("output", 8 - 8 * own, 8) + "}, " + copy(0, 8) + ", " + copy(8, 8) + ", " + copy(16, 8) +
           ", " + copy(24, 8) + "]}, {\"steps\": [" + copy(32, 7) + ", " + copy(39, 5) + ", " + copy(44, 5) + ", " +
           copy(49, 3) + "]}]}";
  };
  Plan plan;
  const ncast_status status = json::read(R"({"narrowcast_plan": 1, "operation": "all_gather", "in_place": "no",
    "chunks": 8, "channels": [{"kind": "ring", "from": 0, "to": 1, "depth": 8},
                              {"kind": "ring", "from": 1, "to": 0, "depth": 8}],
    "ranks": [)" + rank(0) + ", " + rank(1) + "]}",
                                         &plan);
  REQUIRE_MESSAGE(status == NCAST_OK, ncast_last_error());
  REQUIRE(verify::verify(plan).verdict == verify::Verdict::proved);
  return plan;
}

void check_improved(uint64_t round_steps) {
  const simulate::Machine machine = test_machine();
  const Plan plan = badly_divided_gather();
  const Options options = options_of(1'000'000);
  const simulate::Prediction prediction = predict(plan, machine, options);
  std::optional<Plan> parts = split(plan, prediction, false);
  REQUIRE(parts);
  if (!parts) return;
  Result result;
  Best best(plan, prediction, machine, options, &result);
  REQUIRE(is_idle(result.after));

  const auto divided = std::make_shared<const Divided>(std::move(*parts), machine, options.simulation, 1);
  const std::vector<uint32_t> groups = {2, 2};
  Nearest nearest{.divided = divided, .graph = divided->graph()};
  // Some division into five units each, which is not far from one that would do.
  nearest.rules.assignments = divided->graph().schedule(groups, {}).assignments;
  Assignment& units = nearest.rules.assignments[0];  // of the ranks, which do the same
  bool is_found = false;
  for (uint32_t set = 0; set < 1u << units.size() && !is_found; ++set) {
    if (std::popcount(set) != 5) continue;
    for (size_t unit = 0; unit < units.size(); ++unit) units[unit] = set >> unit & 1;
    nearest.trial = divided->trial_of(groups, divided->graph().schedule(groups, nearest.rules));
    is_found = nearest.trial.most_idle > most_idle && nearest.trial.most_idle < almost_busy;
  }
  REQUIRE(is_found);
  improve(nearest, &best, round_steps);
  CHECK_FALSE(is_idle(result.after));
  CHECK(result.after.groups == 4);
  CHECK(result.after.microseconds <= result.before.microseconds);
}

TEST_CASE("units get other groups if all are almost busy enough") { check_improved(annealed_steps); }

TEST_CASE("a descent is enough for large plans") { check_improved(0); }

}  // namespace
}  // namespace narrowcast::plan::schedule
