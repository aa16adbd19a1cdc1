#include "plan/schedule/best.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "plan/verify/verify.h"

namespace narrowcast::plan::schedule {
namespace {

// How many times the fewest groups that seem possible a plan may have, so that the search ends.
constexpr double groups_to_spare = 1.1;

Side side_of(const simulate::Prediction& prediction) {
  Side side;
  side.microseconds = prediction.microseconds;
  const auto idle = [&](double busy_us) {
    return prediction.microseconds > 0 ? 1 - busy_us / prediction.microseconds : 0;
  };
  std::map<uint32_t, double> work_us;  // by rank
  for (const simulate::Activity& activity : prediction.groups) {
    ++side.groups;
    side.most_idle = std::max(side.most_idle, idle(activity.busy_us));
    work_us[activity.rank] += activity.busy_us;
  }
  for (const auto& [rank, busy_us] : work_us) side.least_idle = std::max(side.least_idle, idle(busy_us));
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

bool is_idle(const Side& side) { return side.most_idle > most_idle; }

Best::Best(const Plan& given, const simulate::Prediction& prediction, const simulate::Machine& machine,
           const Options& options, Result* result)
    : machine_(machine),
      simulation_(options.simulation),
      max_groups_(options.max_groups != 0 ? options.max_groups : most_groups(given)),
      limit_us_(0),
      kernels_(options.kernels.can_run && options.kernels.can_run(given) ? &options.kernels : nullptr),
      result_(result) {
  simulation_.records_timeline = false;
  result->before = side_of(prediction);
  begin_with(given, result->before);
}

void Best::begin_with(Plan plan, const Side& side) {
  limit_us_ = side.microseconds * (1 + tolerance);
  *result_ = {std::move(plan), result_->before, side, side.groups, side.groups};
}

bool Best::is_open() const {
  const uint32_t groups = std::min(result_->least_groups, result_->fewest_groups);
  return is_idle(result_->after) || result_->after.groups > groups_to_spare * groups;
}

bool Best::is_better(const Side& side) const {
  const auto rank_of = [](const Side& one) { return std::tuple(is_idle(one), one.groups, one.most_idle); };
  return rank_of(side) < rank_of(result_->after);
}

std::optional<Side> Best::predict(const Plan& plan, double limit_us, const simulate::Orbits* orbits) const {
  simulate::Options simulation = simulation_;
  simulation.orbits = orbits;
  simulation.most_us = limit_us;
  simulate::Prediction prediction;
  if (simulate::simulate(plan, machine_, simulation, &prediction)) return std::nullopt;
  return side_of(prediction);
}

bool Best::is_valid(const Plan& plan) const {
  return (kernels_ == nullptr || kernels_->can_run(plan)) && verify::verify(plan).verdict == verify::Verdict::proved;
}

bool Best::has_few_rings(const Plan& plan) const {
  if (kernels_ == nullptr) return true;
  std::map<std::pair<int, int>, uint32_t> rings;
  return std::ranges::none_of(plan.channels, [&](const Channel& channel) {
    return channel.kind == ChannelKind::ring && ++rings[{channel.from, channel.to}] > kernels_->max_rings;
  });
}

bool Best::consider(Plan plan) {
  if (most_groups(plan) > max_groups_) return false;
  const std::optional<Side> side = predict(plan, limit_us_);
  if (!side || side->microseconds > limit_us_) return false;
  add_groups(side->groups);
  if (side->groups <= result_->before.groups && is_better(*side) && is_valid(plan)) {
    result_->plan = std::move(plan);
    result_->after = *side;
  }
  return true;
}

void Best::add_groups(uint32_t groups) { result_->fewest_groups = std::min(result_->fewest_groups, groups); }

void Best::set_least_groups(uint32_t groups) { result_->least_groups = std::min(result_->least_groups, groups); }

}  // namespace narrowcast::plan::schedule
