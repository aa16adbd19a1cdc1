// The verifier proves the plans of all builders.
#include <algorithm>
#include <vector>

#include "channel/host/control_block.h"
#include "doctest/doctest.h"
#include "narrowcast/codec.h"
#include "plan/builders/builders.h"
#include "plan/json/json.h"
#include "plan/lower/lower.h"
#include "plan/steps.h"
#include "plan/verify/verify.h"
#include "support/sanitized.h"

namespace narrowcast::testing {
namespace {

using namespace plan;
using builders::Request;

// Numbers of ranks up to the most of a host communicator. The plans of its own calls have all of them.
std::vector<int> rank_counts(bool is_own) {
  std::vector<int> counts;
  for (int ranks = 1; ranks <= channel::max_ranks; ++ranks) {
    const bool is_tried = tests::sanitized ? ranks <= 4 || ranks == 8 || (is_own && ranks == channel::max_ranks)
                                           : is_own || ranks <= 8 || ranks % 16 == 0 || ranks == 31;
    if (is_tried) counts.push_back(ranks);
  }
  return counts;
}

// Calls body(row, request) for the plans of all builders.
template <typename Body>
void for_each_request(const Body& body) {
  for (const builders::Row& row : builders::rows()) {
    const std::string_view name = row.name;
    for (const auto& description : operation::descriptions) {
      if (!row.suits(description.operation)) continue;
      for (const int ranks : rank_counts(name == "all_pairs")) {
        if (!row.suits_ranks(ranks)) continue;
        for (int places = 1; places <= ranks; ++places) {
          if (ranks % places != 0 || (name != "two_level" && places > 1)) continue;
          for (const int root : {0, ranks / 2}) {
            if (root > 0 && !operation::has_root(description.operation)) continue;
            body(row,
                 Request{.operation = description.operation, .ranks = ranks, .root = root, .ranks_per_node = places});
          }
        }
      }
    }
  }
}

// Whether every value is encoded once. Then all ranks get the same bits even of a codec that is not exact.
bool encodes_once(std::string_view name, const Request& request) {
  const bool has_levels = request.ranks_per_node != 1 && request.ranks_per_node != request.ranks;
  return name == "all_pairs" || name == "one_shot" || name == "two_shot" || (name == "two_level" && !has_levels) ||
         (name != "halving_doubling" && request.ranks == 2);
}

size_t unused_channels(const Plan& plan) {
  std::vector<uint8_t> is_used(plan.channels.size());
  for (const Rank& rank : plan.ranks)
    for (const Group& group : rank.groups)
      for (const Step& step : group.steps)
        for (const Operand& to : step.to)
          if (to.has_channel()) is_used[to.channel] = 1;
  return static_cast<size_t>(std::ranges::count(is_used, 0));
}

// The library's own calls need two slots, and their plans have nothing to lower.
void check_own_plan(const Plan& plan, const verify::Report& report) {
  CHECK(report.least_depth <= 2);
  CHECK(report.depth_needed_when_split <= 2);
  if (plan.rank_count() > 8 && plan.rank_count() % 16 != 0) return;
  Plan lowered;
  REQUIRE(lower::lower(plan, &lowered) == NCAST_OK);
  CHECK(json::write(lowered) == json::write(plan));
}

TEST_CASE("the plan of every builder is proved, whole and with split messages") {
  for_each_request([](const builders::Row& row, Request request) {
    const std::string_view name = row.name;
    for (const ncast_codec codec : {ncast_codec{NCAST_CODEC_RAW}, ncast_codec{NCAST_CODEC_INT6}}) {
      if (codec != NCAST_CODEC_RAW && request.ranks > 8 && request.ranks < channel::max_ranks) continue;
      request.codec = codec;
      Plan plan;
      REQUIRE_MESSAGE(builders::build(row.name, request, &plan) == NCAST_OK, ncast_last_error());
      const verify::Report report = verify::verify(plan);
      INFO(plan.name, ", ", request.ranks, " ranks, root ", request.root, ", ", request.ranks_per_node, " per node");
      CHECK_MESSAGE(report.verdict == verify::Verdict::proved, report.finding.message);
      // Long messages, as of halving and doubling between many ranks, fill several slots of a ring when they are split.
      const uint32_t depth = std::max(request.depth, report.depth_needed_when_split);
      const verify::Report deeper = depth == request.depth ? report : verify::verify(plan, {.depth = depth});
      CHECK_MESSAGE(deeper.split_ok, deeper.split_finding.message);
      if (request.ranks <= 8) CHECK(depth == request.depth);
      CHECK(report.can_average);
      if (codec == NCAST_CODEC_RAW || encodes_once(name, request)) CHECK(report.same_everywhere);
      const bool is_in_rank_order = row.is_in_rank_order || (name == "halving_doubling" && request.ranks == 2);
      if (is_in_rank_order && operation::reduces(request.operation)) {
        CHECK(report.rank_order);
        CHECK(report.roundings == (request.ranks > 1 ? 1 : 0));
      }
      if (name == "all_pairs") check_own_plan(plan, report);
      CHECK(plan.root == (operation::has_root(request.operation) ? request.root : 0));
      CHECK(unused_channels(plan) == 0);
      for (const Rank& rank : plan.ranks)
        CHECK(std::ranges::none_of(rank.groups, [](const Group& group) { return group.steps.empty(); }));
    }
  });
}

// The hosts of ranks, as communicators may have them.
std::vector<std::vector<int>> host_lists() {
  std::vector<std::vector<int>> lists = {{0, 0, 1},          {0, 1, 1, 1, 1},       {0, 1, 0, 1},
                                         {0, 1, 2, 0, 1, 0}, {0, 0, 0, 1, 2, 2, 2}, {0, 0, 1, 1, 2, 2, 3, 3}};
  for (const auto& [hosts, ranks] : {std::pair{3, 3}, std::pair{4, 2}, std::pair{8, 8}}) {
    if (tests::sanitized && hosts == 8) continue;
    std::vector<int>& list = lists.emplace_back();
    for (int rank = 0; rank < hosts * ranks; ++rank) list.push_back(rank / ranks);
  }
  return lists;
}

TEST_CASE("plans of the ranks of several hosts are proved, round sums once, and need two slots") {
  for (const std::vector<int>& hosts : host_lists()) {
    for (const auto& description : operation::descriptions) {
      if (!has_plans(description.operation)) continue;
      for (const int root : {0, static_cast<int>(hosts.size()) - 1}) {
        if (root > 0 && !operation::has_root(description.operation)) continue;
        for (const ncast_codec codec : {ncast_codec{NCAST_CODEC_WINDOW}, ncast_codec{NCAST_CODEC_INT6}}) {
          const Request request = {.operation = description.operation,
                                   .ranks = static_cast<int>(hosts.size()),
                                   .root = root,
                                   .codec = codec,
                                   .hosts = hosts,
                                   .codec_within = NCAST_CODEC_RAW,
                                   .partial_sums = true};
          Plan plan;
          REQUIRE_MESSAGE(builders::build("two_level", request, &plan) == NCAST_OK, ncast_last_error());
          const verify::Report report = verify::verify(plan);
          INFO(plan.name, ", ", hosts.size(), " ranks, the last on host ", hosts.back(), ", root ", root);
          CHECK_MESSAGE(report.verdict == verify::Verdict::proved, report.finding.message);
          CHECK_MESSAGE(report.split_ok, report.split_finding.message);
          CHECK(report.least_depth <= 2);
          CHECK(report.depth_needed_when_split <= 2);
          CHECK(report.can_average);
          CHECK(report.roundings <= 1);
          CHECK(unused_channels(plan) == 0);
          // Values that only travel are encoded once.
          if (!operation::reduces(description.operation)) CHECK(report.inexact_encodings <= 1);
          if (codec == NCAST_CODEC_WINDOW || !operation::reduces(description.operation)) CHECK(report.same_everywhere);
        }
      }
    }
  }
}

}  // namespace
}  // namespace narrowcast::testing
