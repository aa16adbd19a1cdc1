// Communicators prove the plans of builders before they run them.
#include "executor/host/builder_plans.h"

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "doctest/doctest.h"
#include "narrowcast/types.h"
#include "plan/verify/verify.h"

namespace narrowcast::executor::host {
namespace {

using operation::Operation;
using plan::builders::Request;

std::shared_ptr<const ProvedPlan> proved(std::string_view builder, const Request& request) {
  std::shared_ptr<const ProvedPlan> found;
  REQUIRE(find_proved(builder, request, &found) == NCAST_OK);
  return found;
}

TEST_CASE("a plan of a builder comes with what its proof found") {
  const std::shared_ptr<const ProvedPlan> found = proved("all_pairs", {.operation = Operation::all_reduce, .ranks = 3});
  const plan::verify::Report report = plan::verify::verify(found->plan);
  CHECK(report.verdict == plan::verify::Verdict::proved);
  CHECK(found->least_depth == 2);
  // One reduction on each rank.
  std::set<int> ranks;
  for (const plan::verify::Where& where : found->completing) ranks.insert(where.rank);
  CHECK(ranks == std::set{0, 1, 2});
  CHECK(found->completing.size() == 3);
}

TEST_CASE("ranks of a process share a plan while one of them keeps it") {
  const Request request = {.operation = Operation::all_reduce, .ranks = 16};
  std::vector<std::shared_ptr<const ProvedPlan>> found(8);
  std::vector<std::thread> threads;
  for (auto& one : found) threads.emplace_back([&] { find_proved("all_pairs", request, &one); });
  for (std::thread& thread : threads) thread.join();
  REQUIRE(found[0] != nullptr);
  for (const auto& one : found) CHECK(one == found[0]);
  CHECK(proved("all_pairs", request) == found[0]);

  const std::weak_ptr<const ProvedPlan> kept = found[0];
  found.clear();
  CHECK(kept.expired());
  CHECK(proved("all_pairs", request) != nullptr);
}

TEST_CASE("calls that differ do not share a plan") {
  const Request request = {.operation = Operation::broadcast, .ranks = 4};
  const auto plan = proved("all_pairs", request);
  CHECK(proved("relay", request) != plan);
  for (const auto change :
       {+[](Request* one) { one->operation = Operation::reduce; }, +[](Request* one) { one->ranks = 5; },
        +[](Request* one) { one->root = 1; }, +[](Request* one) { one->codec = NCAST_CODEC_WINDOW; },
        +[](Request* one) { one->depth = 3; }}) {
    Request other = request;
    change(&other);
    CHECK(proved("all_pairs", other) != plan);
  }
  Request hosts = request;
  hosts.hosts = {0, 0, 1, 1};
  const auto of_hosts = proved("two_level", hosts);
  CHECK(proved("two_level", hosts) == of_hosts);
  for (const auto change :
       {+[](Request* one) { one->hosts = {0, 1, 1, 1}; }, +[](Request* one) { one->codec_within = NCAST_CODEC_WINDOW; },
        +[](Request* one) { one->partial_sums = true; }}) {
    Request other = hosts;
    change(&other);
    CHECK(proved("two_level", other) != of_hosts);
  }
  CHECK(proved("two_level", request) !=
        proved("two_level", {.operation = Operation::broadcast, .ranks = 4, .ranks_per_node = 2}));
}

TEST_CASE("a plan that is not proved is an error") {
  std::shared_ptr<const ProvedPlan> found;
  const Request request = {.operation = Operation::all_reduce, .ranks = 3, .depth = 1};
  CHECK(find_proved("all_pairs", request, &found) == NCAST_INTERNAL);
  CHECK(std::string(ncast_last_error()).starts_with("the plan 'all_reduce all_pairs' is not proved: "));
  CHECK(found == nullptr);
}

TEST_CASE("a plan that cannot be built is an error each time") {
  std::shared_ptr<const ProvedPlan> found;
  for (int time = 0; time < 2; ++time) {
    CHECK(find_proved("halving_doubling", {.ranks = 6}, &found) == NCAST_INVALID_ARGUMENT);
    CHECK(found == nullptr);
  }
}

}  // namespace
}  // namespace narrowcast::executor::host
