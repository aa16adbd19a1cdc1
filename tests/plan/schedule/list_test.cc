#include "plan/schedule/list.h"

#include <optional>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "plan/builders/builders.h"
#include "plan/json/json.h"
#include "plan/schedule/split.h"
#include "plan/verify/verify.h"
#include "schedules.h"

namespace narrowcast::plan::schedule {
namespace {

Plan parts_of(const Plan& plan, const Options& options) {
  std::optional<Plan> parts = split(plan, predict(plan, test_machine(), options));
  REQUIRE(parts);
  return *parts;
}

TEST_CASE("list schedules use no more merged groups than they may, and their plans are proved") {
  const Options options = options_of(100'000'000);
  for (const char* name : {"tree", "ring", "all_pairs"}) {
    Plan plan;
    REQUIRE(builders::build(name, {.operation = Operation::all_reduce, .ranks = 4}, &plan) == NCAST_OK);
    const Plan parts = parts_of(plan, options);
    const StepGraph graph(parts, test_machine(), options.simulation);
    for (const bool divides_evenly : {false, true})
      for (const uint32_t each : {1, 2, 4}) {
        const StepGraph::Schedule schedule = graph.schedule(std::vector<uint32_t>(4, each), divides_evenly);
        const Plan merged = merge(parts, schedule.order, schedule.assignments);
        for (const Rank& rank : merged.ranks) CHECK(rank.groups.size() <= each);
        const verify::Report report = verify::verify(merged);
        CHECK_MESSAGE(report.verdict == verify::Verdict::proved, report.finding.message);
      }
  }
}

// A broadcast whose root sends three chunks on rings of their own, and copies them to its output.
Plan broadcast_of_three_chunks() {
  std::string channels, sends, copies, receives;
  for (int chunk = 0; chunk < 3; ++chunk) {
    const std::string comma = chunk == 0 ? "" : ", ", number = std::to_string(chunk);
    const std::string output = "\"to\": [{\"buffer\": \"output\", \"chunk\": " + number + "}]}]}";
    const std::string input = R"({"steps": [{"step": "copy", "from": [{"buffer": "input", "chunk": )" + number + "}], ";
    channels += comma + R"({"kind": "ring", "from": 0, "to": 1, "depth": 1})";
    sends += comma + input + "\"to\": [{\"channel\": " + number + "}]}]}";
    copies += ", " + input + output;
    receives += comma + R"({"steps": [{"step": "copy", "from": [{"channel": )" + number + "}], " + output;
  }
  Plan plan;
  const ncast_status status = json::read(
      R"({"narrowcast_plan": 1, "operation": "broadcast", "in_place": "no", "chunks": 3, "channels": [)" + channels +
          R"(], "ranks": [{"groups": [)" + sends + copies + R"(]}, {"groups": [)" + receives + "]}]}",
      &plan);
  REQUIRE_MESSAGE(status == NCAST_OK, ncast_last_error());
  return plan;
}

TEST_CASE("steps that need a full link begin after steps that do not") {
  const Options options = options_of(100'000'000);
  const Plan plan = broadcast_of_three_chunks();
  const Plan parts = parts_of(plan, options);
  const StepGraph::Schedule schedule = StepGraph(parts, test_machine(), options.simulation).schedule({3, 3}, false);
  // Sends have the longest paths. Two of them use the whole link, so that a copy begins before the third.
  const std::vector<GroupTimes>& order = schedule.order[0];
  int sends_first = 0;
  for (size_t group = 0; group < order.size(); ++group) {
    const bool sends = parts.ranks[0].groups[group].steps[0].to[0].place == Place::message;
    if (sends && order[group].begin[0] < 3) ++sends_first;
  }
  CHECK(sends_first == 2);
}

}  // namespace
}  // namespace narrowcast::plan::schedule
