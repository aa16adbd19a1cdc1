// Plans of a few kilobytes that would take minutes and gigabytes.
#include "plan/limits.h"

#include <string>

#include "doctest/doctest.h"
#include "narrowcast/plan.h"
#include "plan/budget.h"
#include "plan/json/json.h"
#include "plan/lower/lower.h"
#include "plan/verify/verify.h"
#include "support/processor_seconds.h"

namespace narrowcast::plan::verify {
namespace {

std::string times(int count, const std::string& text) {
  std::string all = text;
  for (int i = 1; i < count; ++i) all += "," + text;
  return all;
}

// A plan of one rank.
Plan plan_of(const std::string& groups, const std::string& keys, const std::string& rank_keys = "") {
  const std::string text = R"({"narrowcast_plan": 1, "operation": "all_reduce", "channels": [
      {"kind": "memory", "from": 0, "to": 0}], )" +
                           keys + R"("ranks": [{)" + rank_keys + R"("groups": [)" + groups + "]}]}";
  REQUIRE(text.size() < 8 << 10);
  Plan plan;
  REQUIRE_MESSAGE(json::read(text, &plan) == NCAST_OK, ncast_last_error());
  return plan;
}

std::string group(const std::string& steps) { return R"({"steps": [)" + steps + "]}"; }
std::string copy_step(const std::string& from, const std::string& to, uint32_t count = 1) {
  return R"({"step":"copy","count":)" + std::to_string(count) + R"(,"from":[)" + from + R"(],"to":[)" + to + "]}";
}
std::string at(const char* buffer, int chunk) {
  return R"({"buffer":")" + std::string(buffer) + R"(","chunk":)" + std::to_string(chunk) + "}";
}

// The plan is not even replicated.
void check_too_many(const Plan& plan, const std::string& message) {
  Plan lowered;
  CHECK(lower::lower(plan, &lowered) == NCAST_UNSUPPORTED);
  CHECK(std::string(ncast_last_error()) == "the plan is too large: " + message);
  CHECK(lowered.ranks.empty());
}

TEST_CASE("whatever instances multiply is counted before the plan is replicated") {
  const std::string in_all = " instances, operands, dependences, channels and groups in all: ";
  const std::string input = at("input", 0), output = at("output", 0), sync = R"({"step":"sync"})";
  check_too_many(plan_of(group(copy_step(input, output)), R"("instances": 4000000000, )"),
                 "4000000000 instances, steps in all: 4000000000; at most 4000000 are supported");
  check_too_many(plan_of(group(copy_step(input, output, 5000)), R"("instances": 1000, "chunks": 5000, )"),
                 "1000 instances, steps in all: 5000000; at most 4000000 are supported");
  check_too_many(plan_of(group(copy_step(input, output, 4000000000) + "," + copy_step(input, output, 4000000000)),
                         R"("instances": 4000000000, )"),
                 "4000000000 instances, steps in all: 8000000000; at most 4000000 are supported");
  check_too_many(plan_of(times(100, group("")), R"("instances": 1000000, )"),
                 "1000000" + in_all + "101000000; at most 10000000 are supported");
  check_too_many(plan_of(group(copy_step(input, times(50, output))), R"("instances": 1000000, )"),
                 "1000000" + in_all + "53000000; at most 10000000 are supported");
  check_too_many(
      plan_of(group(R"({"step":"signal","channels":[)" + times(100, "0") + "]}"), R"("instances": 1000000, )"),
      "1000000" + in_all + "102000000; at most 10000000 are supported");
  check_too_many(plan_of(group(sync) + "," + group(R"({"step":"sync","after":[)" + times(98, "[0,0]") + "]}"),
                         R"("instances": 1000000, )"),
                 "1000000" + in_all + "101000000; at most 10000000 are supported");
  check_too_many(plan_of(group(""), R"("instances": 1000000, )", R"("barriers": [)" + times(49, "[0]") + "], "),
                 "1000000" + in_all + "100000000; at most 10000000 are supported");
  const auto highest = [](const std::string& number) {
    return "1000 instances, the highest number of a chunk or channel is " + number +
           "; at most 4294967295 are supported";
  };
  check_too_many(plan_of(group(""), R"("instances": 1000, "chunks": 4294968, )"), highest("4294968000"));
  check_too_many(plan_of(group(""), R"("instances": 1000, )", R"("scratch_chunks": 4294968, )"), highest("4294968000"));
  check_too_many(plan_of(group(copy_step(input, at("output", 4294967))), R"("instances": 1000, )"),
                 highest("4294968000"));
}

void check_unsupported(const Plan& plan, const std::string& message, double most_seconds) {
  const double begin = narrowcast::testing::processor_seconds();
  const Report report = verify(plan);
  const double seconds = narrowcast::testing::processor_seconds() - begin;
  CHECK(report.verdict == Verdict::unsupported);
  CHECK(report.finding.message == "the plan is too large: " + message);
  CHECK(report.finding.trace.empty());
  MESSAGE(seconds, " s");
  CHECK(seconds < most_seconds);
}

TEST_CASE("iterations and chunks are counted before the plan is proved") {
  check_unsupported(plan_of(group(R"({"step":"loop","unit_bytes":16,"steps":[)" +
                                  copy_step(at("input", 0), at("output", 0), 1000000) + "]}"),
                            R"("chunks": 1000000, )"),
                    "steps, with loops unrolled and messages split: 4000001; at most 4000000 are supported", 0.1);
  check_unsupported(plan_of(group(copy_step(at("input", 0), at("output", 0), 10000000)), R"("chunks": 10000000, )"),
                    "chunks of buffers: 20000000; at most 16000000 are supported", 0.1);
  check_unsupported(plan_of(group(""), R"("chunks": 4000000000, )"),
                    "chunks of a buffer: 4000000000; at most 16000000 are supported", 0.1);
  check_unsupported(plan_of(group(""), "", R"("scratch_chunks": 4294967295, )"),
                    "chunks of buffers: 4294967297; at most 16000000 are supported", 0.1);
  // They do not count for the next proof.
  CHECK(verify(plan_of(group(copy_step(at("input", 0), at("output", 0))), "")).verdict == Verdict::proved);
}

// Each round shifts the sums by a chunk and adds the input, so that values have more and more contributions.
Plan with_growing_sums(int chunks, int rounds) {
  std::string steps = copy_step(at("input", 0), at("scratch", 0), chunks);
  for (int round = 1; round <= rounds; ++round) {
    steps += "," + copy_step(at("scratch", 0), at("scratch", chunks + 1), chunks) + R"(,{"step":"reduce","count":)" +
             std::to_string(chunks - round) + R"(,"from":[)" + at("scratch", chunks + 1) + "," + at("input", round) +
             R"(],"to":[)" + at("scratch", 0) + "]}";
  }
  return plan_of(group(steps), R"("chunks": )" + std::to_string(chunks) + ", ",
                 R"("scratch_chunks": )" + std::to_string(2 * chunks + 2) + ", ");
}

TEST_CASE("a proof ends when it has taken so many operations, or so much memory") {
  const Plan plan = with_growing_sums(3000, 20);
  {
    const Budget budget(5'000'000);
    check_unsupported(plan, "it takes more than 5000000 operations", 1);
  }
  {
    const Budget budget(max_work, 8 << 20);
    check_unsupported(plan, "it takes more than 8 MiB of memory", 1);
  }
  CHECK(verify(plan).verdict == Verdict::refuted);
}

}  // namespace
}  // namespace narrowcast::plan::verify
