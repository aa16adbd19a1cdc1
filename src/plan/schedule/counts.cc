#include "plan/schedule/counts.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace narrowcast::plan::schedule {
namespace {

constexpr double infinite_cost = std::numeric_limits<double>::infinity();

// The share of the time in which the groups of the busiest rank work.
double most_busy(const Trial& trial) {
  double most = 0;
  for (size_t rank = 0; rank < trial.groups.size(); ++rank)
    most = std::max(most, trial.busy_us[rank] / trial.groups[rank] / trial.microseconds);
  return most;
}

}  // namespace

std::optional<std::vector<uint32_t>> CountSearch::next() {
  // Times are tried from the limit down to a tenth of it: in more groups, schedules get that short. Between two of them
  // the numbers of groups change by at most one, if they are not above 50.
  constexpr double ratio = 0.98;
  constexpr int times = 114;
  // Idle shares are less certain the more the time differs from that of the trial: its work shares links differently.
  constexpr double distrust = 0.5;
  double least = infinite_cost;
  std::optional<std::vector<uint32_t>> best;
  const auto consider = [&](std::vector<uint32_t> groups, double cost) {
    if (cost >= least || seen_.contains(groups)) return;
    least = cost;
    best = std::move(groups);
  };
  for (const Trial& trial : trials_) {
    consider(trial.groups, trial.most_idle);
    const double reached = most_busy(trial);
    // The busiest rank of another schedule may be about as busy as in this one, or busier.
    for (const double busy : {reached, (reached + 1) / 2, 0.86, 0.9, 0.94, 0.97})
      for (int time = 0; time < times; ++time) {
        const double us = limit_us_ * std::pow(ratio, time);
        const double change = std::abs(std::log(us / trial.microseconds));
        if (1 - busy + distrust * change >= least) continue;
        std::vector<uint32_t> groups;
        double idle = 1 - busy;
        for (const double work_us : trial.busy_us) {
          const double needed = std::ceil(work_us / (us * busy) * (1 - 1e-9));
          groups.push_back(static_cast<uint32_t>(std::clamp<double>(needed, 1, most_)));
          idle = std::max(idle, needed <= most_ ? 1 - work_us / (us * groups.back()) : infinite_cost);
        }
        consider(std::move(groups), idle + distrust * change);
      }
  }
  if (best) seen_.insert(*best);
  return best;
}

}  // namespace narrowcast::plan::schedule
