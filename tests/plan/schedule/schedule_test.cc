#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "narrowcast/plan.h"
#include "plan/builders/builders.h"
#include "plan/json/json.h"
#include "plan/schedule/scheduler.h"
#include "plan/schedule/split.h"
#include "plan/verify/verify.h"
#include "schedules.h"

namespace narrowcast::plan::schedule {
namespace {

// A broadcast from rank 0 through ranks 1 and 2 to rank 3, with a group for each connection: rank r receives into its
// output and another group then forwards it.
Plan chain(const std::string& extra_group = "") {
  std::string channels, ranks;
  for (int rank = 0; rank < 4; ++rank) {
    const std::string number = std::to_string(rank), before = std::to_string(rank - 1);
    if (rank != 3)
      channels += (rank == 0 ? "" : ", ") + (R"({"kind": "ring", "depth": 2, "from": )" + number) +
                  ", \"to\": " + std::to_string(rank + 1) + "}";
    const std::string output = R"({"buffer": "output", "chunk": 0})";
    const std::string from = rank == 0 ? R"({"buffer": "input", "chunk": 0})" : "{\"channel\": " + before + "}";
    ranks += (rank == 0 ? "" : ", ") + (R"({"groups": [{"steps": [{"step": "copy", "from": [)" + from) +
             R"(], "to": [)" + output + "]}]}";
    if (rank != 3)
      ranks += R"(, {"steps": [{"step": "copy", "after": [[0, 0]], "from": [)" + output + R"(], "to": [{"channel": )" +
               number + "}]}]}";
    ranks += extra_group + "]}";
  }
  Plan plan;
  const ncast_status status = json::read(
      R"({"narrowcast_plan": 1, "operation": "broadcast", "channels": [)" + channels + "], \"ranks\": [" + ranks + "]}",
      &plan);
  REQUIRE_MESSAGE(status == NCAST_OK, ncast_last_error());
  REQUIRE(verify::verify(plan).verdict == verify::Verdict::proved);
  return plan;
}

TEST_CASE("groups that are never busy together are merged, in the order of their steps") {
  const Result result = schedule_of(chain());
  CHECK(result.before.groups == 7);
  CHECK(result.after.groups == 4);
  CHECK(result.after.microseconds <= result.before.microseconds);
  CHECK(result.after.most_idle <= result.before.most_idle);
  for (const Rank& rank : result.plan.ranks) {
    REQUIRE(rank.groups.size() == 1);
    CHECK(rank.groups[0].steps[0].to[0].buffer == Buffer::output);
    for (const Step& step : rank.groups[0].steps) CHECK(step.after.empty());
  }
}

// An all-gather of three ranks. Each sends to both others, and the groups that send also copy one of the two chunks to
// the rank's own output.
Plan gather_with_copies() {
  const auto channel = [](int from, int to) { return std::to_string(2 * from + (to - from + 3) % 3 - 1); };
  std::string channels, ranks;
  for (int rank = 0; rank < 3; ++rank) {
    std::string sends, receives;
    for (int distance = 1; distance < 3; ++distance) {
      const int to = (rank + distance) % 3;
      const std::string part = std::to_string(distance - 1);
      channels += (channels.empty() ? "" : ", ") + (R"({"kind": "ring", "depth": 2, "from": )" + std::to_string(rank)) +
                  ", \"to\": " + std::to_string(to) + "}";
      sends +=
          (distance == 1 ? "" : ", ") +
          (R"({"steps": [{"step": "copy", "count": 2, "from": [{"buffer": "input", "chunk": 0}], "to": [{"channel": )" +
           channel(rank, to) + R"(}]}, {"step": "copy", "from": [{"buffer": "input", "chunk": )" + part +
           R"(}], "to": [{"buffer": "output", "chunk": )" + std::to_string(2 * rank + distance - 1) + "}]}]}");
      receives += R"(, {"steps": [{"step": "copy", "count": 2, "from": [{"channel": )" + channel(to, rank) +
                  R"(}], "to": [{"buffer": "output", "chunk": )" + std::to_string(2 * to) + "}]}]}";
    }
    ranks += (rank == 0 ? "" : ", ") + ("{\"groups\": [" + sends) + receives + "]}";
  }
  Plan plan;
  const ncast_status status =
      json::read(R"({"narrowcast_plan": 1, "operation": "all_gather", "chunks": 2, "in_place": "no", "channels": [)" +
                     channels + "], \"ranks\": [" + ranks + "]}",
                 &plan);
  REQUIRE_MESSAGE(status == NCAST_OK, ncast_last_error());
  REQUIRE(verify::verify(plan).verdict == verify::Verdict::proved);
  return plan;
}

TEST_CASE("steps of one group can go to different merged groups") {
  // No two of the four groups of a rank can be merged: those that send are busy until those that receive are, too.
  const Result result = schedule_of(gather_with_copies(), 0, 1);
  CHECK(result.before.groups == 12);
  CHECK(result.after.groups == 9);
  CHECK(result.after.microseconds <= result.before.microseconds * (1 + 1e-9));
}

TEST_CASE("plans whose connections cannot be divided evenly are replicated") {
  Plan plan;
  REQUIRE(builders::build("all_pairs", {.operation = Operation::reduce_scatter, .ranks = 4}, &plan) == NCAST_OK);
  const Result once = schedule_of(plan, 0, 1), replicated = schedule_of(plan, 0, 2);
  CHECK(once.plan.chunks == plan.chunks);
  CHECK(replicated.plan.chunks == 2 * plan.chunks);
  CHECK(replicated.plan.channels.size() == 2 * plan.channels.size());
  CHECK(replicated.plan.instances == 1);
  CHECK(replicated.after.groups < once.after.groups);
  CHECK(replicated.after.microseconds <= once.before.microseconds * (1 + 1e-9));
  CHECK(schedule_of(plan, 0, 3).after.groups == replicated.after.groups);
}

TEST_CASE("replicas keep a limit of groups") {
  for (const uint32_t limit : {1u, 2u})
    for (const Rank& rank : schedule_of(gather_with_copies(), limit).plan.ranks) CHECK(rank.groups.size() <= limit);
}

TEST_CASE("groups are divided into connections, and steps wait for others that access the same memory") {
  // A broadcast whose root sends from its output. The copy to the output and the send become groups, because only the
  // send uses the ring.
  Plan plan;
  REQUIRE(json::read(R"({"narrowcast_plan": 1, "operation": "broadcast", "in_place": "no",
    "channels": [{"kind": "ring", "from": 0, "to": 1, "depth": 1}], "ranks": [
    {"groups": [{"steps": [
      {"step": "copy", "from": [{"buffer": "input", "chunk": 0}], "to": [{"buffer": "output", "chunk": 0}]},
      {"step": "sync"},
      {"step": "copy", "from": [{"buffer": "output", "chunk": 0}], "to": [{"channel": 0}]}]}]},
    {"scratch_chunks": 1, "groups": [{"steps": [
      {"step": "copy", "from": [{"channel": 0}], "to": [{"buffer": "scratch", "chunk": 0}]}]}, {"steps": [
      {"step": "copy", "after": [[0, 0]], "from": [{"buffer": "scratch", "chunk": 0}],
       "to": [{"buffer": "output", "chunk": 0}]},
      {"step": "copy", "from": [{"buffer": "output", "chunk": 0}], "to": [{"buffer": "scratch", "chunk": 0}]}]}]}]})",
                     &plan) == NCAST_OK);
  REQUIRE(verify::verify(plan).verdict == verify::Verdict::proved);
  simulate::Prediction prediction;
  const simulate::Options options{.piece_bytes = 1'000'000, .max_batches = 1, .records_timeline = true};
  REQUIRE(simulate::simulate(plan, test_machine(), options, &prediction) == NCAST_OK);
  const std::optional<Plan> divided = split(plan, prediction);
  REQUIRE(divided);
  CHECK(verify::verify(*divided).verdict == verify::Verdict::proved);
  const std::vector<Group>& root = divided->ranks[0].groups;
  REQUIRE(root.size() == 2);
  CHECK(root[0].steps[0].after.empty());
  CHECK(root[1].steps[0].to[0].place == Place::message);
  CHECK(root[1].steps[0].after == std::vector<StepId>{{0, 0}});
  const std::vector<Group>& other = divided->ranks[1].groups;
  REQUIRE(other.size() == 3);
  CHECK(other[1].steps[0].after == std::vector<StepId>{{0, 0}});
  // It reads what the copy wrote, and overwrites what the copy read and what the message wrote.
  CHECK(other[2].steps[0].after == std::vector<StepId>{{0, 0}, {1, 0}});

  plan.threads = Threads::independent;
  CHECK(!split(plan, prediction));
}

TEST_CASE("groups with barriers or loops stay as they are") {
  const Plan plan = chain(R"(, {"steps": [{"step": "loop", "unit_bytes": 4096, "steps": [{"step": "sync"}]}]})");
  const Result result = schedule_of(plan);
  for (const Rank& rank : result.plan.ranks)
    CHECK(std::ranges::count_if(rank.groups, [](const Group& group) {
            return group.steps.size() == 1 && group.steps[0].kind == StepKind::loop;
          }) == 1);
}

TEST_CASE("plans with independent threads stay as they are") {
  Plan plan = chain();
  plan.threads = Threads::independent;
  // The group that forwards waits for another group's step, which orders its threads.
  Result result;
  REQUIRE(schedule(plan, test_machine(), {{.piece_bytes = 1'000'000}, 0}, &result) == NCAST_OK);
  CHECK(result.after.groups == 7);
}

TEST_CASE("a limit of groups is met even if the plan takes longer") {
  // Each rank sends to all others at the same time, limited by its CTAs.
  std::string channels, ranks;
  for (int from = 0; from < 4; ++from)
    for (int to = 0; to < 4; ++to)
      if (from != to)
        channels += (channels.empty() ? "" : ", ") +
                    (R"({"kind": "ring", "depth": 4, "from": )" + std::to_string(from)) +
                    ", \"to\": " + std::to_string(to) + "}";
  const auto channel = [](int from, int to) { return std::to_string(3 * from + to - (to > from ? 1 : 0)); };
  for (int rank = 0; rank < 4; ++rank) {
    std::string groups = R"({"steps": [{"step": "copy", "from": [{"buffer": "input", "chunk": 0}], "to": [{"buffer":
      "output", "chunk": )" +
                         std::to_string(rank) + "}]}]}";
    for (int peer = 0; peer < 4; ++peer) {
      if (peer == rank) continue;
      groups += R"(, {"steps": [{"step": "copy", "from": [{"buffer": "input", "chunk": 0}], "to": [{"channel": )" +
                channel(rank, peer) + R"(, "codec": "window"}]}]}, {"steps": [{"step": "copy", "from": [{"channel": )" +
                channel(peer, rank) + R"(, "codec": "window"}], "to": [{"buffer": "output", "chunk": )" +
                std::to_string(peer) + "}]}]}";
    }
    ranks += (rank == 0 ? "" : ", ") + ("{\"groups\": [" + groups) + "]}";
  }
  Plan plan;
  REQUIRE(json::read(R"({"narrowcast_plan": 1, "operation": "all_gather", "in_place": "no", "channels": [)" + channels +
                         "], \"ranks\": [" + ranks + "]}",
                     &plan) == NCAST_OK);
  const Result free = schedule_of(plan);
  CHECK(free.after.microseconds <= free.before.microseconds);
  const Result limited = schedule_of(plan, 2);
  for (const Rank& rank : limited.plan.ranks) CHECK(rank.groups.size() <= 2);
  CHECK(limited.after.microseconds > limited.before.microseconds);
}

TEST_CASE("a limit of groups that barriers make impossible is an error") {
  Plan plan = chain();
  for (Rank& rank : plan.ranks) {
    rank.barriers.push_back({});
    for (uint32_t i = 0; i < 2; ++i) {
      rank.barriers[0].push_back(static_cast<uint32_t>(rank.groups.size()));
      Step barrier;
      barrier.kind = StepKind::barrier;
      rank.groups.push_back({{barrier}});
    }
  }
  REQUIRE(verify::verify(plan).verdict == verify::Verdict::proved);
  Result result;
  CHECK(schedule(plan, test_machine(), {{.piece_bytes = 1000}, 2}, &result) == NCAST_UNSUPPORTED);
  CHECK(std::string(ncast_last_error()) == "plan: its groups cannot be merged into 2 on every rank");
}

TEST_CASE("the C functions simulate and schedule proved plans") {
  ncast_plan* plan = nullptr;
  const std::string text = json::write(chain());
  REQUIRE(ncast_plan_read(text.data(), text.size(), &plan) == NCAST_OK);
  ncast_plan_simulation simulation = {};
  simulation.struct_bytes = sizeof simulation;
  simulation.piece_bytes = 1'000'000;
  simulation.timeline = 1;
  ncast_text* report = nullptr;
  REQUIRE(ncast_plan_simulate(plan, machine_text, &simulation, &report) == NCAST_OK);
  CHECK(std::string(ncast_text_data(report)).starts_with("{\"microseconds\":"));
  CHECK(std::string(ncast_text_data(report)).find("\"timeline\":[[0,0,0,0,1.0,") != std::string::npos);
  ncast_text_destroy(report);
  ncast_plan* scheduled = nullptr;
  REQUIRE(ncast_plan_schedule(plan, machine_text, &simulation, &scheduled, &report) == NCAST_OK);
  CHECK(std::string(ncast_text_data(report)).find("\"after\":{\"groups\":4,") != std::string::npos);
  ncast_text_destroy(report);
  ncast_plan_destroy(scheduled);

  CHECK(ncast_plan_simulate(plan, "{}", &simulation, &report) == NCAST_INVALID_ARGUMENT);
  simulation.ratio = -1;
  CHECK(ncast_plan_simulate(plan, machine_text, &simulation, &report) == NCAST_INVALID_ARGUMENT);
  simulation.ratio = 0;
  ncast_plan_destroy(plan);

  // A plan whose channel does not exist must not be followed.
  std::string broken = text;
  broken.replace(broken.find("\"channel\": 0"), 12, "\"channel\": 9");
  REQUIRE(ncast_plan_read(broken.data(), broken.size(), &plan) == NCAST_OK);
  CHECK(ncast_plan_simulate(plan, machine_text, &simulation, &report) == NCAST_INVALID_ARGUMENT);
  CHECK(std::string(ncast_last_error()).starts_with("ncast_plan_simulate: the plan is not proved: "));
  CHECK(ncast_plan_schedule(plan, machine_text, &simulation, &scheduled, &report) == NCAST_INVALID_ARGUMENT);
  CHECK(std::string(ncast_last_error()).starts_with("ncast_plan_schedule: the plan is not proved: "));
  ncast_plan_destroy(plan);
}

}  // namespace
}  // namespace narrowcast::plan::schedule
