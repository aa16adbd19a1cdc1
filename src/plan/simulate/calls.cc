#include "plan/simulate/calls.h"

#include <algorithm>
#include <cstddef>

#include "plan/simulate/kernel.h"

namespace narrowcast::plan::simulate {
namespace {

// The delay between successive ranks that only send. Half or twice this value predicts equally many measured calls
// within 15%.
constexpr double apart_us = 1;
// Successive calls have a steady duration from the second one on, or from the fourth one on if ranks are not in step. A
// rank that only sends can be a call ahead, so the last call does not share its links and is not counted.
constexpr uint32_t calls_in_step = 2, calls_apart = 5;

bool only_sends(const Rank& rank) {
  return std::ranges::none_of(rank.groups, [](const Group& group) {
    return std::ranges::any_of(group.steps, [](const Step& step) {
      const auto receives = [](const Step& one) {
        return one.kind == StepKind::wait ||
               std::ranges::any_of(one.from, [](const Operand& from) { return from.has_channel() || from.packets; });
      };
      return receives(step) || std::ranges::any_of(step.body, receives);
    });
  });
}

}  // namespace

Calls::Calls(const Plan& plan, const Machine& machine, const TaskLists& task_lists, bool repeats)
    : launch_us_(launch_us_of(plan, machine)),
      announcement_us_(machine.step_us + (plan.rank_count() > machine.gpus_per_host ? machine.network_latency_us
                                                                                    : machine.link_latency_us)),
      ranks_(plan.ranks.size()) {
  for (const TaskList& task_list : task_lists.all) ranks_[task_list.rank].works = true;
  uint32_t senders = 0;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].works) continue;
    ++working_;
    if (only_sends(plan.ranks[rank])) ranks_[rank].apart_us = apart_us * senders++;
  }
  calls_.resize(!repeats ? 1 : senders > 1 ? calls_apart : calls_in_step);
  calls_[0].begun = working_;
  calls_[0].last_begin = launch_us_;
}

void Calls::extend(uint32_t rank, uint32_t call, double time) {
  ranks_[rank].end = std::max(ranks_[rank].end, time);
  calls_[call].end = std::max(calls_[call].end, time);
}

std::optional<Calls::Begin> Calls::next() {
  for (uint32_t number = 0; number < ranks_.size(); ++number) {
    OfRank& rank = ranks_[number];
    if (!rank.works || rank.ended != rank.begun || rank.begun == calls_.size()) continue;
    const OfCall& ended = calls_[rank.begun - 1];
    if (ended.begun != working_) continue;
    double time = rank.end;
    if (working_ > 1) time = std::max(time, ended.last_begin + announcement_us_);
    time += launch_us_ + (rank.begun == 1 ? rank.apart_us : 0);
    OfCall& begun = calls_[rank.begun++];
    ++begun.begun;
    begun.last_begin = std::max(begun.last_begin, time);
    return Begin{number, time};
  }
  return std::nullopt;
}

double Calls::repeated_us() const {
  if (calls_.size() == 1) return microseconds();
  const size_t last = calls_.size() - (calls_.size() == calls_apart ? 2 : 1);
  return calls_[last].end - calls_[last - 1].end;
}

}  // namespace narrowcast::plan::simulate
