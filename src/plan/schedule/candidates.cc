#include "plan/schedule/candidates.h"

#include <algorithm>
#include <map>
#include <utility>

#include "plan/verify/verify.h"

namespace narrowcast::plan::schedule {
namespace {

constexpr double tolerance = 1e-9;  // for rounding of predicted times

Side side_of(const simulate::Prediction& prediction) {
  Side side{static_cast<uint32_t>(prediction.groups.size()), prediction.microseconds, 0};
  for (const simulate::Activity& activity : prediction.groups)
    if (prediction.microseconds > 0)
      side.most_idle = std::max(side.most_idle, 1 - activity.busy_us / prediction.microseconds);
  return side;
}

}  // namespace

uint32_t most_groups(const Plan& plan) {
  size_t most = 0;
  for (const Rank& rank : plan.ranks) most = std::max(most, rank.groups.size());
  return static_cast<uint32_t>(most);
}

uint64_t steps_of(const Plan& plan) {
  uint64_t steps = 0;
  for (const Rank& rank : plan.ranks)
    for (const Group& group : rank.groups) steps += group.steps.size();
  return steps;
}

Candidates::Candidates(const Plan& given, const simulate::Prediction& prediction, const simulate::Machine& machine,
                       const Options& options)
    : machine_(machine),
      simulation_(options.simulation),
      max_groups_(options.max_groups != 0 ? options.max_groups : most_groups(given)),
      before_(side_of(prediction)),
      kernels_(options.kernels.can_run && options.kernels.can_run(given) ? &options.kernels : nullptr) {
  simulation_.records_timeline = false;
  begin_with(given, before_);
}

void Candidates::begin_with(Plan plan, const Side& side) {
  limit_us_ = side.microseconds * (1 + tolerance);
  fewest_groups_ = side.groups;
  given_ = {std::move(plan), side};
}

std::optional<Side> Candidates::predict(const Plan& plan, double limit_us) const {
  simulate::Options simulation = simulation_;
  simulation.most_us = limit_us;
  simulate::Prediction prediction;
  if (simulate::simulate(plan, machine_, simulation, &prediction)) return std::nullopt;
  return side_of(prediction);
}

bool Candidates::is_valid(const Plan& plan) const {
  return (kernels_ == nullptr || kernels_->can_run(plan)) && verify::verify(plan).verdict == verify::Verdict::proved;
}

bool Candidates::has_few_rings(const Plan& plan) const {
  if (kernels_ == nullptr) return true;
  std::map<std::pair<int, int>, uint32_t> rings;
  return std::ranges::none_of(plan.channels, [&](const Channel& channel) {
    return channel.kind == ChannelKind::ring && ++rings[{channel.from, channel.to}] > kernels_->max_rings;
  });
}

bool Candidates::add(Plan plan) {
  if (most_groups(plan) > max_groups_) return false;
  const std::optional<Side> side = predict(plan, limit_us_);
  if (!side || side->microseconds > limit_us_) return false;
  fewest_groups_ = std::min(fewest_groups_, side->groups);
  others_.emplace(order_of(*side), Candidate{std::move(plan), *side});
  return true;
}

Result Candidates::best() && {
  for (auto& [order, other] : others_) {
    if (order >= order_of(given_.side)) break;
    if (is_valid(other.plan)) return {std::move(other.plan), before_, other.side};
  }
  return {std::move(given_.plan), before_, given_.side};
}

}  // namespace narrowcast::plan::schedule
