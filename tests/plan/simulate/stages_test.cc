#include "plan/simulate/stages.h"

#include <string>
#include <string_view>

#include "doctest/doctest.h"
#include "plan/builders/builders.h"
#include "plan/json/json.h"
#include "plan/lower/lower.h"

namespace narrowcast::plan::simulate {
namespace {

Stages built(std::string_view name, Operation operation, int ranks) {
  Plan plan;
  REQUIRE(builders::build(name, {.operation = operation, .ranks = ranks}, &plan) == NCAST_OK);
  REQUIRE(lower::lower(plan, &plan) == NCAST_OK);
  return stages_of(plan, nullptr);
}

uint32_t last_stage(const Stages& stages) {
  uint32_t last = 0;
  for (const auto& rank : stages)
    for (const auto& group : rank)
      for (const uint32_t stage : group) last = std::max(last, stage);
  return last;
}

TEST_CASE("the last stage is the length of the longest chain of messages") {
  CHECK(last_stage(built("all_pairs", Operation::all_gather, 4)) == 1);
  CHECK(last_stage(built("all_pairs", Operation::reduce_scatter, 4)) == 1);
  CHECK(last_stage(built("all_pairs", Operation::all_reduce, 4)) == 2);
  CHECK(last_stage(built("ring", Operation::all_gather, 4)) == 3);
  CHECK(last_stage(built("ring", Operation::all_reduce, 4)) == 6);
}

// Rank 0 receives a chunk in one group, which another one sends back.
std::string sending_back(const std::string& steps_of_second_group, const std::string& channels = "") {
  return R"({"narrowcast_plan": 1, "operation": "all_gather", "in_place": "no", "channels": [
    {"kind": "ring", "depth": 2, "from": 0, "to": 1}, {"kind": "ring", "depth": 2, "from": 1, "to": 0})" +
         channels + R"(], "ranks": [
    {"groups": [{"steps": [)" +
         steps_of_second_group + R"(]},
      {"steps": [{"step": "copy", "from": [{"channel": 1}], "to": [{"buffer": "output", "chunk": 1}]}]}]},
    {"groups": [{"steps": [
      {"step": "copy", "from": [{"buffer": "input", "chunk": 0}], "to": [{"channel": 1}]},
      {"step": "copy", "from": [{"channel": 0}], "to": [{"buffer": "output", "chunk": 1}]}]}]}]})";
}

Stages stages_of_json(const std::string& json) {
  Plan plan;
  REQUIRE_MESSAGE(json::read(json, &plan) == NCAST_OK, ncast_last_error());
  return stages_of(plan, nullptr);
}

TEST_CASE("steps follow those that they wait for, and those that wrote what they read") {
  const std::string send = R"("from": [{"buffer": "output", "chunk": 1}], "to": [{"channel": 0}]})";
  CHECK(stages_of_json(sending_back(R"({"step": "copy", "after": [[1, 0]], )" + send)) == Stages{{{1}, {1}}, {{0, 2}}});
  CHECK(stages_of_json(sending_back(R"({"step": "sync", "after": [[1, 0]]}, {"step": "copy", )" + send)) ==
        Stages{{{1, 1}, {1}}, {{0, 2}}});
  CHECK(stages_of_json(
            sending_back(R"({"step": "copy", "from": [{"buffer": "input", "chunk": 0}], "to": [{"channel": 0}]})")) ==
        Stages{{{0}, {1}}, {{0, 1}}});
  const std::string local = R"("to": [{"buffer": "output", "chunk": 0}]})";
  CHECK(stages_of_json(sending_back(
            R"({"step": "copy", "after": [[1, 0]], "from": [{"buffer": "output", "chunk": 1}], )" + local +
            R"(, {"step": "copy", "from": [{"buffer": "output", "chunk": 0}], "to": [{"channel": 0}]})")) ==
        Stages{{{1, 1}, {1}}, {{0, 2}}});
}

// Two ranks exchange a chunk, which one group sends before the other one overwrites it.
TEST_CASE("what is sent before it is overwritten does not follow its writer") {
  const auto rank = [](int sends, int receives) {
    return R"({"groups": [
      {"steps": [{"step": "copy", "after": [[1, 0]], "from": [{"channel": )" +
           std::to_string(receives) + R"(}], "to": [{"buffer": "input", "chunk": 0}]}]},
      {"steps": [{"step": "copy", "from": [{"buffer": "input", "chunk": 0}], "to": [{"channel": )" +
           std::to_string(sends) + "}]}]}]}";
  };
  CHECK(stages_of_json(R"({"narrowcast_plan": 1, "operation": "all_reduce", "in_place": "yes", "channels": [
    {"kind": "ring", "depth": 2, "from": 0, "to": 1}, {"kind": "ring", "depth": 2, "from": 1, "to": 0}], "ranks": [)" +
                       rank(0, 1) + ", " + rank(1, 0) + "]}") == Stages{{{1}, {0}}, {{1}, {0}}});
}

TEST_CASE("steps that wait for each other have no stages") {
  CHECK(stages_of_json(sending_back(R"({"step": "copy", "from": [{"channel": 1}], "to": [{"channel": 0}]}, )"
                                    R"({"step": "copy", "from": [{"channel": 1}], "to": [{"channel": 0}]})"))
            .empty());
}

TEST_CASE("plans with semaphores or barriers have one stage") {
  const std::string memory = R"(, {"kind": "memory", "from": 0, "to": 1})";
  const std::string send = R"({"step": "copy", "from": [{"buffer": "input", "chunk": 0}], "to": [{"channel": 0}]})";
  CHECK(!stages_of_json(sending_back(send)).empty());
  CHECK(stages_of_json(sending_back(send, memory)).empty());
}

}  // namespace
}  // namespace narrowcast::plan::simulate
