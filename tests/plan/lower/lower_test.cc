#include "plan/lower/lower.h"

#include <string>

#include "doctest/doctest.h"
#include "narrowcast/plan.h"
#include "plan/json/json.h"
#include "plan/limits.h"
#include "plan/verify/verify.h"

namespace narrowcast::plan::lower {
namespace {

// A plan whose rank 0 has these groups (a JSON list of lists of steps), and whose rank 1 has none.
Plan plan_of(const std::string& groups, const std::string& keys = "") {
  const std::string text = R"({"narrowcast_plan": 1, "operation": "all_reduce", "chunks": 4, )" + keys + R"(
    "channels": [{"kind": "ring", "from": 1, "to": 0, "depth": 8}, {"kind": "ring", "from": 0, "to": 1, "depth": 8},
                 {"kind": "memory", "from": 0, "to": 0}, {"kind": "memory", "from": 0, "to": 1}],
    "ranks": [{"scratch_chunks": 4, "barriers": [[0, 1]], "groups": )" +
                           groups + R"(}, {"groups": []}]})";
  Plan plan;
  const ncast_status status = json::read(text, &plan);
  REQUIRE_MESSAGE(status == NCAST_OK, ncast_last_error());
  return plan;
}

// Whether two plans are the same.
void check_same(const Plan& found, const Plan& expected) { CHECK(json::write(found) == json::write(expected)); }

TEST_CASE("a replica has its part of every chunk, and groups, channels and barriers of its own") {
  const Plan plan = plan_of(R"([{"steps": [
      {"step": "copy", "from": [{"buffer": "input", "chunk": 3}], "to": [{"channel": 1}], "after": [[1, 0]]},
      {"step": "barrier", "barrier": 0}]},
    {"steps": [{"step": "signal", "channels": [2]}]}])",
                            R"("instances": 2, )");
  Plan replicated;
  REQUIRE(replicate(plan, &replicated) == NCAST_OK);
  CHECK(replicated.instances == 1);
  CHECK(replicated.chunks == 8);
  CHECK(replicated.channels.size() == 8);
  CHECK(replicated.channels[3].from == 0);  // the second replica of channel 1
  const Rank& rank = replicated.ranks[0];
  CHECK(rank.scratch_chunks == 8);
  CHECK(rank.barriers == std::vector<std::vector<uint32_t>>{{0, 2}, {1, 3}});
  REQUIRE(rank.groups.size() == 4);
  for (uint32_t instance : {0u, 1u}) {
    const std::vector<Step>& steps = rank.groups[instance].steps;
    CHECK(steps[0].from[0].chunk == 6 + instance);
    CHECK(steps[0].to[0].channel == 2 + instance);
    CHECK(steps[0].after[0] == StepId{2 + instance, 0});
    CHECK(steps[1].barrier == instance);
    CHECK(rank.groups[2 + instance].steps[0].channels == std::vector<uint32_t>{4 + instance});
  }
}

TEST_CASE("the C function lowers a plan") {
  ncast_plan* plan = nullptr;
  ncast_plan* lowered = nullptr;
  const std::string text = json::write(plan_of("[]", R"("instances": 2, )"));
  REQUIRE(ncast_plan_read(text.data(), text.size(), &plan) == NCAST_OK);
  REQUIRE(ncast_plan_lower(plan, &lowered) == NCAST_OK);
  ncast_plan_info info = {};
  info.struct_bytes = sizeof info;
  REQUIRE(ncast_plan_describe(lowered, &info) == NCAST_OK);
  CHECK(info.chunks == 8);
  CHECK(ncast_plan_lower(plan, nullptr) == NCAST_INVALID_ARGUMENT);
  ncast_plan_destroy(lowered);
  ncast_plan_destroy(plan);
}

TEST_CASE("a replicated step of several chunks becomes steps of one, and others wait for the last one") {
  const Plan plan = plan_of(R"([{"steps": [
      {"step": "copy", "count": 3, "from": [{"buffer": "input", "chunk": 1}], "to": [{"channel": 1}]}]},
    {"steps": [{"step": "sync", "after": [[0, 0]]}]}])",
                            R"("instances": 2, )");
  Plan replicated;
  REQUIRE(replicate(plan, &replicated) == NCAST_OK);
  const std::vector<Step>& steps = replicated.ranks[0].groups[1].steps;
  REQUIRE(steps.size() == 3);
  for (uint32_t i = 0; i < 3; ++i) {
    CHECK(steps[i].count == 1);
    CHECK(steps[i].from[0].chunk == 2 * (1 + i) + 1);
  }
  CHECK(replicated.ranks[0].groups[3].steps[0].after[0] == StepId{1, 2});
}

TEST_CASE("a plan that becomes too large is an error") {
  Plan plan = plan_of(R"([{"steps": [{"step": "sync"}]}, {"steps": []}])");
  Plan replicated;
  plan.instances = max_steps + 1;
  CHECK(replicate(plan, &replicated) == NCAST_UNSUPPORTED);
  CHECK(std::string(ncast_last_error())
            .find("the plan is too large: 4000001 instances, steps in all: 4000001; at most 4000000") !=
        std::string::npos);
  plan.instances = 0;
  CHECK(replicate(plan, &replicated) == NCAST_INVALID_ARGUMENT);
}

TEST_CASE("a forwarding copy becomes a destination of the step that received the values") {
  const Plan fused = fuse(plan_of(R"([{"steps": [
      {"step": "copy", "from": [{"channel": 0}], "to": [{"buffer": "output", "chunk": 1}]},
      {"step": "copy", "from": [{"buffer": "output", "chunk": 1}], "to": [{"channel": 1, "codec": "window"}]},
      {"step": "copy", "from": [{"buffer": "output", "chunk": 1}], "to": [{"buffer": "output", "chunk": 1, "channel": 3}]}]},
    {"steps": [{"step": "sync", "after": [[0, 1]]}]}])"));
  check_same(fused, plan_of(R"([{"steps": [
      {"step": "copy", "from": [{"channel": 0}], "to": [{"buffer": "output", "chunk": 1},
        {"channel": 1, "codec": "window"}, {"buffer": "output", "chunk": 1, "channel": 3}]}]},
    {"steps": [{"step": "sync", "after": [[0, 0]]}]}])"));
}

TEST_CASE("reductions into one place become one reduction") {
  const std::string reduce = R"({"step": "reduce", "from": [{"buffer": "output", "chunk": 1}, )";
  const std::string into = R"(], "to": [{"buffer": "output", "chunk": 1}]})";
  const std::string two = "[{\"steps\": [" + reduce + R"({"channel": 0})" + into + ", " + reduce +
                          R"({"buffer": "scratch", "chunk": 2})" + into + "]}";
  const Plan fused = fuse(plan_of(two + R"(, {"steps": []}])"));
  check_same(fused, plan_of("[{\"steps\": [" + reduce + R"({"channel": 0}, {"buffer": "scratch", "chunk": 2})" + into +
                            R"(]}, {"steps": []}])"));

  SUBCASE("unless another group waits for the first sum") {
    const Plan plan = plan_of(two + R"(, {"steps": [{"step": "sync", "after": [[0, 0]]}]}])");
    check_same(fuse(plan), plan);
  }
}

TEST_CASE("steps are not fused if that could change what they do") {
  const std::string receive = R"({"step": "copy", "from": [{"channel": 0}], "to": [{"buffer": "output", "chunk": 1}]})";
  for (const char* second : {
           // other values, another number of chunks, packets
           R"({"step": "copy", "from": [{"buffer": "output", "chunk": 2}], "to": [{"channel": 1}]})",
           R"({"step": "copy", "count": 2, "from": [{"buffer": "output", "chunk": 1}], "to": [{"channel": 1}]})",
           R"({"step": "copy", "from": [{"buffer": "output", "chunk": 1, "packets": true}], "to": [{"channel": 1}]})",
           // input and output can be the same memory
           R"({"step": "copy", "from": [{"buffer": "output", "chunk": 1}], "to": [{"buffer": "input", "chunk": 0}]})",
           // it waits for another group
           R"({"step": "copy", "from": [{"buffer": "output", "chunk": 1}], "to": [{"channel": 1}], "after": [[1, 0]]})",
           // memory of this rank, through a channel
           R"({"step": "copy", "from": [{"buffer": "output", "chunk": 1}],
               "to": [{"buffer": "output", "chunk": 1, "channel": 2}]})",
       }) {
    CAPTURE(second);
    const Plan plan = plan_of("[{\"steps\": [" + receive + ", " + second + R"(]}, {"steps": [{"step": "sync"}]}])");
    check_same(fuse(plan), plan);
  }
}

TEST_CASE("steps are not fused if the fused plan deadlocks") {
  // Every rank passes a value on around a ring of two, through rings of one message.
  std::string ranks;
  for (const char* rank : {"0", "1"}) {
    const std::string from = rank[0] == '0' ? "1" : "0";
    ranks +=
        (ranks.empty() ? "" : ", ") + std::string(R"({"scratch_chunks": 2, "groups": [{"steps": [)") +
        R"({"step": "copy", "from": [{"buffer": "input", "chunk": 0}], "to": [{"channel": )" + rank + "}]}, " +
        R"({"step": "copy", "from": [{"channel": )" + from + R"(}], "to": [{"buffer": "scratch", "chunk": 0}]}, )" +
        R"({"step": "copy", "from": [{"buffer": "scratch", "chunk": 0}], "to": [{"channel": )" + rank + "}]}, " +
        R"({"step": "copy", "from": [{"channel": )" + from + R"(}], "to": [{"buffer": "output", "chunk": )" + rank +
        R"(}]}, {"step": "copy", "from": [{"buffer": "scratch", "chunk": 0}], "to": [{"buffer": "output", "chunk": )" +
        from + "}]}]}]}";
  }
  const std::string text = R"({"narrowcast_plan": 1, "operation": "all_gather", "channels": [
      {"kind": "ring", "from": 0, "to": 1, "depth": 1}, {"kind": "ring", "from": 1, "to": 0, "depth": 1}],
      "ranks": [)" + ranks +
                           "]}";
  Plan plan;
  REQUIRE(json::read(text, &plan) == NCAST_OK);
  REQUIRE(verify::verify(plan).verdict == verify::Verdict::proved);
  REQUIRE(verify::verify(fuse(plan)).finding.property == verify::Property::deadlock);
  Plan lowered;
  REQUIRE(lower(plan, &lowered) == NCAST_OK);
  check_same(lowered, plan);
}

TEST_CASE("indices that point to nothing stay so") {
  Plan plan = plan_of(R"([{"steps": [{"step": "sync", "after": [[1, 9], [7, 0]]},
      {"step": "barrier", "barrier": 5}, {"step": "signal", "channels": [99]}]}, {"steps": []}])",
                      R"("instances": 3, )");
  Plan lowered;
  REQUIRE(lower(plan, &lowered) == NCAST_OK);
  const std::vector<Step>& steps = lowered.ranks[0].groups[0].steps;
  CHECK(steps[0].after[0].step > 9);
  CHECK(steps[0].after[1].group >= lowered.ranks[0].groups.size());
  CHECK(steps[1].barrier >= lowered.ranks[0].barriers.size());
  CHECK(steps[2].channels[0] >= lowered.channels.size());
}

}  // namespace
}  // namespace narrowcast::plan::lower
