#include "plan/schedule/symmetry.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "doctest/doctest.h"
#include "narrowcast/plan.h"
#include "plan/builders/builders.h"
#include "plan/lower/lower.h"
#include "plan/schedule/schedule.h"
#include "plan/schedule/split.h"
#include "plan/simulate/simulate.h"
#include "plan/verify/verify.h"

namespace narrowcast::plan::schedule {
namespace {

simulate::Machine machine_of(int hosts, int gpus_per_host) {
  simulate::Machine machine;
  const std::string text = "{\"narrowcast_machine\": 1, \"hosts\": " + std::to_string(hosts) +
                           ", \"gpus_per_host\": " + std::to_string(gpus_per_host) +
                           R"(, "link_gbps": 100, "link_packets_gbps": 50, "link_latency_us": 1, "network_gbps": 40,
    "network_latency_us": 3, "ctas": 64, "cta_move_gbps": 40, "cta_reduce_gbps": 40, "cta_encode_gbps": 40,
    "cta_decode_gbps": 40, "slot_latency_us": 1, "coded_latency_us": 1, "step_us": 0.1, "launch_us": 1})";
  REQUIRE_MESSAGE(simulate::read_machine(text, &machine) == NCAST_OK, ncast_last_error());
  return machine;
}

constexpr simulate::Options timed{
    .piece_bytes = 4'000'000, .max_batches = 1, .ctas_per_group = 1, .records_timeline = true};

Plan divided(std::string_view name, Operation operation, int ranks, const simulate::Machine& machine,
             uint32_t instances = 1) {
  Plan plan;
  REQUIRE(builders::build(name, {.operation = operation, .ranks = ranks}, &plan) == NCAST_OK);
  plan.instances = instances;
  REQUIRE(lower::lower(plan, &plan) == NCAST_OK);
  simulate::Prediction prediction;
  REQUIRE(simulate::simulate(plan, machine, timed, &prediction) == NCAST_OK);
  const std::optional<Plan> result = split(plan, prediction, true);
  REQUIRE(result);
  return result.value_or(Plan());
}

size_t simulated_ranks(const Symmetry& symmetry) {
  return std::set(symmetry.orbits.ranks.begin(), symmetry.orbits.ranks.end()).size();
}

TEST_CASE("ranks that do the same are found") {
  const simulate::Machine one = machine_of(1, 8), two = machine_of(2, 4);
  CHECK(simulated_ranks(find_symmetry(divided("ring", Operation::all_reduce, 8, one), one)) == 1);
  CHECK(simulated_ranks(find_symmetry(divided("all_pairs", Operation::all_to_all, 8, one), one)) == 1);
  CHECK(simulated_ranks(find_symmetry(divided("all_pairs", Operation::all_reduce, 8, one), one)) == 1);
  // Through two hosts, a ring has four places. One group of all pairs sends to the next rank first, perhaps of the
  // other host. With a group for each pair the order does not matter.
  CHECK(simulated_ranks(find_symmetry(divided("ring", Operation::all_reduce, 8, two), two)) == 4);
  CHECK(simulated_ranks(find_symmetry(divided("all_pairs", Operation::all_reduce, 8, two), two)) == 4);
  CHECK(simulated_ranks(find_symmetry(divided("all_pairs", Operation::all_to_all, 8, two), two)) == 1);
  // A root is a rank of its own, and the ranks of a relay have different neighbours.
  CHECK(simulated_ranks(find_symmetry(divided("relay", Operation::broadcast, 8, one), one)) == 8);
}

TEST_CASE("ranks of which one does a little more are different") {
  const simulate::Machine machine = machine_of(1, 8);
  Plan plan = divided("all_pairs", Operation::all_to_all, 8, machine);
  REQUIRE(simulated_ranks(find_symmetry(plan, machine)) == 1);
  Plan waits = plan, copies = plan;
  // Of another step, which changes no result.
  std::vector<Group>& groups = waits.ranks[5].groups;
  REQUIRE(groups.size() >= 2);
  REQUIRE(groups[1].steps.back().after != std::vector<StepId>{{0, 0}});
  groups[1].steps.back().after = {{0, 0}};
  CHECK(simulated_ranks(find_symmetry(waits, machine)) == 8);
  copies.ranks[5].groups[0].steps.back().count = 2;
  CHECK(simulated_ranks(find_symmetry(copies, machine)) == 8);
  plan.channels[3].depth += 1;
  CHECK(simulated_ranks(find_symmetry(plan, machine)) == 8);
}

TEST_CASE("the simulation of one rank predicts what that of all ranks does") {
  for (const auto& [hosts, gpus] : {std::pair(1, 8), std::pair(2, 4), std::pair(4, 2)}) {
    const simulate::Machine machine = machine_of(hosts, gpus);
    for (const auto& [name, instances] : {std::pair("ring", 1), std::pair("all_pairs", 1), std::pair("all_pairs", 3)}) {
      CAPTURE(name);
      CAPTURE(instances);
      CAPTURE(hosts);
      const Plan plan = divided(name, Operation::all_reduce, 8, machine, static_cast<uint32_t>(instances));
      const Symmetry symmetry = find_symmetry(plan, machine);
      REQUIRE(!symmetry.is_trivial());
      simulate::Options options = timed;
      options.records_timeline = false;
      simulate::Prediction all, some;
      REQUIRE(simulate::simulate(plan, machine, options, &all) == NCAST_OK);
      Plan simulated = plan;
      for (size_t rank = 0; rank < plan.ranks.size(); ++rank)
        if (!symmetry.orbits.is_simulated(rank)) simulated.ranks[rank].groups.clear();
      options.orbits = &symmetry.orbits;
      REQUIRE(simulate::simulate(simulated, machine, options, &some) == NCAST_OK);
      CHECK(some.microseconds == doctest::Approx(all.microseconds).epsilon(1e-6));
      REQUIRE(some.groups.size() == all.groups.size());
      CHECK(some.sent_bytes == all.sent_bytes);
      double busy = 0, all_busy = 0;
      for (const simulate::Activity& one : some.groups) busy += one.busy_us;
      for (const simulate::Activity& one : all.groups) all_busy += one.busy_us;
      CHECK(busy == doctest::Approx(all_busy).epsilon(1e-6));
    }
  }
}

TEST_CASE("ranks that do the same get the same groups") {
  const simulate::Machine machine = machine_of(1, 4);
  Plan plan;
  REQUIRE(builders::build("all_pairs", {.operation = Operation::all_to_all, .ranks = 4}, &plan) == NCAST_OK);
  REQUIRE(lower::lower(plan, &plan) == NCAST_OK);
  Result result;
  REQUIRE(schedule(plan, machine, {{.piece_bytes = 4'000'000, .max_batches = 1}}, &result) == NCAST_OK);
  CHECK(verify::verify(result.plan).verdict == verify::Verdict::proved);
  CHECK(result.after.groups < result.before.groups);
  CHECK(result.after.groups % 4 == 0);
  for (const Rank& rank : result.plan.ranks) {
    REQUIRE(rank.groups.size() == result.after.groups / 4);
    for (size_t group = 0; group < rank.groups.size(); ++group)
      CHECK(rank.groups[group].steps.size() == result.plan.ranks[0].groups[group].steps.size());
  }
}

}  // namespace
}  // namespace narrowcast::plan::schedule
