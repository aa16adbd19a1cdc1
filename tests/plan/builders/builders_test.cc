// What all builders have in common. tests/executor/host runs their plans.
#include "plan/builders/builders.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "narrowcast/plan.h"
#include "narrowcast/types.h"
#include "operation/operation.h"
#include "plan/handle.h"
#include "plan/json/json.h"

namespace narrowcast::testing {
namespace {

using namespace plan;
using builders::Request;

std::string error_of(std::string_view name, const Request& request) {
  Plan plan;
  return builders::build(name, request, &plan) == NCAST_OK ? "" : ncast_last_error();
}

TEST_CASE("a builder is known by its name") {
  std::set<std::string> names;
  for (const builders::Row& row : builders::rows()) names.insert(row.name);
  CHECK(names.size() == builders::rows().size());
  CHECK(error_of("all_pairs", {.ranks = 3}).empty());
  CHECK(error_of("al_pairs", {.ranks = 3}).starts_with("unknown algorithm 'al_pairs'; the algorithms are all_pairs"));
}

TEST_CASE("builders reject what they cannot build") {
  CHECK(error_of("all_pairs", {.ranks = 0}) == "all_pairs: ranks is 0, not 1 to 1024");
  CHECK(error_of("all_pairs", {.ranks = 1025}) == "all_pairs: ranks is 1025, not 1 to 1024");
  CHECK(error_of("all_pairs", {.operation = Operation::broadcast, .ranks = 2, .root = 2}) ==
        "all_pairs: root is 2, but the plan has ranks 0 to 1");
  CHECK(error_of("all_pairs", {.ranks = 2, .depth = 0}) == "all_pairs: depth is 0, not 1 to 65536");
  CHECK(error_of("all_pairs", {.ranks = 2, .codec = NCAST_CODEC_AUTO}).starts_with("all_pairs: "));
  CHECK(error_of("all_pairs", {.operation = Operation::send, .ranks = 2}) == "all_pairs has no plan for send");
  CHECK(error_of("all_pairs", {.operation = Operation::all_to_all_v, .ranks = 2}) ==
        "all_pairs has no plan for all_to_all_v");
  CHECK(error_of("halving_doubling", {.ranks = 6}) == "halving_doubling: ranks is 6, which is not a power of two");
  CHECK(error_of("two_level", {.ranks = 6, .ranks_per_node = 4}) ==
        "two_level: ranks_per_node is 4, which does not divide 6 ranks");
}

TEST_CASE("ranks of a reduction that is relayed first send to the next rank that combines a piece") {
  Plan plan;
  REQUIRE(builders::build("relay", {.operation = Operation::reduce, .ranks = 4, .root = 1}, &plan) == NCAST_OK);
  const auto first_peers = [&](size_t rank) {
    std::vector<int> peers;
    for (const Step& step : plan.ranks[rank].groups[0].steps)
      if (step.kind == StepKind::copy && step.to[0].place == Place::message)
        peers.push_back(plan.channels[step.to[0].channel].to);
    return peers;
  };
  CHECK(first_peers(0) == std::vector{2, 3});
  CHECK(first_peers(1) == std::vector{2, 3, 0});  // the root
  CHECK(first_peers(2) == std::vector{3, 0});
  CHECK(first_peers(3) == std::vector{0, 2});
}

TEST_CASE("a rank of a tree serves the child with the largest subtree first") {
  Plan plan;
  REQUIRE(builders::build("tree", {.operation = Operation::broadcast, .ranks = 8, .root = 1}, &plan) == NCAST_OK);
  std::vector<int> peers;
  for (const Operand& to : plan.ranks[1].groups[0].steps[0].to)
    if (to.place == Place::message) peers.push_back(plan.channels[to.channel].to);
  CHECK(peers == std::vector{5, 3, 2});
}

TEST_CASE("the C function builds the requested plan") {
  Plan expected;
  ncast_plan_request request = {.struct_bytes = sizeof request,
                                .operation = NCAST_OP_REDUCE,
                                .ranks = 6,
                                .root = 4,
                                .codec = NCAST_CODEC_WINDOW,
                                .depth = 3,
                                .ranks_per_node = 2};
  REQUIRE(builders::build("two_level",
                          {.operation = Operation::reduce,
                           .ranks = 6,
                           .root = 4,
                           .codec = NCAST_CODEC_WINDOW,
                           .depth = 3,
                           .ranks_per_node = 2},
                          &expected) == NCAST_OK);
  ncast_plan* plan = nullptr;
  REQUIRE(ncast_plan_build("two_level", &request, &plan) == NCAST_OK);
  CHECK(json::write(plan->plan) == json::write(expected));
  ncast_plan_destroy(plan);

  // A depth or number of ranks per node of 0 is the default.
  request.depth = request.ranks_per_node = 0;
  REQUIRE(builders::build("two_level",
                          {.operation = Operation::reduce, .ranks = 6, .root = 4, .codec = NCAST_CODEC_WINDOW},
                          &expected) == NCAST_OK);
  REQUIRE(ncast_plan_build("two_level", &request, &plan) == NCAST_OK);
  CHECK(json::write(plan->plan) == json::write(expected));
  ncast_plan_destroy(plan);
}

// The chunks that each rank sends to other hosts.
std::vector<int> crossing_chunks(const Plan& plan, const std::vector<int>& hosts) {
  std::vector<int> chunks(hosts.size(), 0);
  for (const Rank& rank : plan.ranks)
    for (const Group& group : rank.groups)
      for (const Step& step : group.steps)
        for (const Operand& to : step.to) {
          if (to.place != Place::message) continue;
          const Channel& ring = plan.channels[to.channel];
          if (hosts[static_cast<size_t>(ring.from)] == hosts[static_cast<size_t>(ring.to)]) continue;
          chunks[static_cast<size_t>(ring.from)] += static_cast<int>(step.count);
        }
  return chunks;
}

TEST_CASE("two levels send every value to another host once, from the rank with the index of its owner") {
  const std::vector<int> even = {0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3}, uneven = {0, 1, 1, 1};
  const auto crossing = [](Operation operation, const std::vector<int>& hosts, int root) {
    Plan plan;
    const Request request = {.operation = operation,
                             .ranks = static_cast<int>(hosts.size()),
                             .root = root,
                             .hosts = hosts,
                             .partial_sums = true};
    REQUIRE_MESSAGE(builders::build("two_level", request, &plan) == NCAST_OK, ncast_last_error());
    return crossing_chunks(plan, hosts);
  };
  for (const Operation operation : {Operation::all_gather, Operation::reduce_scatter}) {
    CHECK(crossing(operation, even, 0) == std::vector(12, 3));
    // Rank 0 stands for all three ranks of the other host.
    CHECK(crossing(operation, uneven, 0) ==
          (operation == Operation::all_gather ? std::vector{1, 1, 1, 1} : std::vector{3, 1, 0, 0}));
  }
  CHECK(crossing(Operation::all_reduce, even, 0) == std::vector(12, 6));  // of twelve chunks
  CHECK(crossing(Operation::all_reduce, uneven, 0) == std::vector{4, 2, 1, 1});
  CHECK(crossing(Operation::all_to_all, even, 0) == std::vector(12, 9));
  CHECK(crossing(Operation::broadcast, even, 4) == std::vector{0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0});
  CHECK(crossing(Operation::scatter, even, 4) == std::vector{0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0});
  CHECK(crossing(Operation::gather, even, 4) == std::vector{0, 3, 0, 0, 0, 0, 0, 3, 0, 0, 3, 0});
  CHECK(crossing(Operation::reduce, even, 4) == std::vector{0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0});
}

TEST_CASE("hosts of two levels are given in order, for all ranks") {
  CHECK(error_of("two_level", {.ranks = 3, .hosts = {0, 1}}) == "two_level: there are 2 hosts for 3 ranks");
  const std::string order = "precedes host 1; they are not numbered in order";
  CHECK(error_of("two_level", {.ranks = 3, .hosts = {0, 2, 1}}) == "two_level: host 2 " + order);
  CHECK(error_of("two_level", {.ranks = 3, .hosts = {0, -1, 1}}) == "two_level: host -1 " + order);
}

}  // namespace
}  // namespace narrowcast::testing
