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

TEST_CASE("two levels send one message between nodes, from each rank or for each node") {
  constexpr int nodes = 3, places = 4;
  for (const auto& [operation, expected] :
       {std::pair{Operation::all_to_all, places * nodes * (nodes - 1)}, std::pair{Operation::gather, nodes - 1},
        std::pair{Operation::scatter, nodes - 1}}) {
    CAPTURE(operation::name_of(operation));
    Plan plan;
    const Request request = {.operation = operation, .ranks = nodes * places, .root = 5, .ranks_per_node = places};
    REQUIRE(builders::build("two_level", request, &plan) == NCAST_OK);
    int messages = 0, chunks = 0;
    for (const Rank& rank : plan.ranks)
      for (const Group& group : rank.groups)
        for (const Step& step : group.steps)
          for (const Operand& to : step.to) {
            if (to.place != Place::message) continue;
            const Channel& ring = plan.channels[to.channel];
            if (ring.from / places == ring.to / places) continue;
            CHECK(ring.from % places == ring.to % places);
            ++messages;
            chunks += static_cast<int>(step.count);
          }
    CHECK(messages == expected);
    CHECK(chunks == places * expected);
  }
}

}  // namespace
}  // namespace narrowcast::testing
