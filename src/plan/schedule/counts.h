// How many groups the ranks of a plan get, chosen by what schedules with other numbers needed.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace narrowcast::plan::schedule {

// A schedule, and how evenly it occupies its groups.
struct Trial {
  std::vector<uint32_t> groups;  // by rank, how many it could use
  std::vector<double> busy_us;   // by rank, of all its groups
  double microseconds = 0;
  double most_idle = 1;  // share of the time in which the idlest group does not work
  uint32_t used = 0;     // groups that have steps
};

// Chooses numbers of groups for which no group may be idle for long.
//
// Method: the groups of a rank have about the same work in similar schedules, and those of the busiest rank work for
// about the same share of the time. So a trial predicts, for other times, how many groups each rank needs and how idle
// these would be. The next numbers are those with the least idle prediction, preferably for a time near that of a
// trial whose groups were not idle either.
class CountSearch {
 public:
  // limit_us: what a schedule may take. most: groups of a rank.
  CountSearch(double limit_us, uint32_t most) : limit_us_(limit_us), most_(most) {}

  void add(Trial trial) { trials_.push_back(std::move(trial)); }
  // Numbers of groups, by rank, that it has not returned before. Empty without trials.
  std::optional<std::vector<uint32_t>> next();
  // Lets next() return the same numbers again, for another division of the work.
  void begin_again() { seen_.clear(); }

 private:
  double limit_us_;
  uint32_t most_;
  std::vector<Trial> trials_;
  std::set<std::vector<uint32_t>> seen_;
};

}  // namespace narrowcast::plan::schedule
