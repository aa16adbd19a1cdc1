#include "plan/verify/synchronization.h"

#include <algorithm>
#include <string>
#include <utility>

#include "plan/budget.h"

namespace narrowcast::plan::verify {

Synchronization::Synchronization(const FlatPlan& flat_plan)
    : flat_plan_(flat_plan), map_(*flat_plan.plan, flat_plan.parts, false) {}

void Synchronization::clear() {
  const size_t groups = flat_plan_.groups.size(), channels = flat_plan_.channels.size();
  spend(groups + channels + (flat_plan_.has_packets ? map_.cells() : 0));
  order_.clear();
  next_.resize(groups);
  for (size_t i = 0; i < groups; ++i) next_[i] = flat_plan_.groups[i].begin;
  sent_.assign(channels, 0);
  received_.assign(channels, 0);
  arrived_.assign(groups, 0);
  arrivals_.assign(flat_plan_.barriers.size(), 0);
  step_waiters_.assign(groups, none);
  message_waiters_.assign(channels, none);
  room_waiters_.assign(channels, none);
  next_waiter_.assign(groups, none);
  until_.assign(groups, 0);
  if (flat_plan_.has_packets) {
    has_packets_.assign(map_.cells(), 0);
    packet_waiters_.assign(map_.cells(), none);
  }
  runnable_.clear();
}

bool Synchronization::run(uint32_t depth) {
  depth_ = depth;
  clear();
  for (size_t group = flat_plan_.groups.size(); group-- > 0;) runnable_.push_back(static_cast<uint32_t>(group));
  while (!runnable_.empty()) {
    const uint32_t group = runnable_.back();
    runnable_.pop_back();
    run_group(group);
  }
  for (size_t group = 0; group < flat_plan_.groups.size(); ++group)
    if (next_[group] != flat_plan_.groups[group].end) return false;
  return true;
}

void Synchronization::run_group(uint32_t group) {
  while (next_[group] != flat_plan_.groups[group].end) {
    const uint32_t flat = next_[group];
    const Blocker blocker = blocker_of(flat);
    if (blocker.reason != Reason::ready) return block(group, blocker);
    const FlatStep& step = flat_plan_.steps[flat];
    if (step.step->kind == StepKind::barrier) {
      if (!arrive(flat)) return;
      continue;
    }
    complete(flat);
    ++next_[group];
    wake_step_waiters(group);
  }
}

// Returns whether all groups have arrived; they have then passed the barrier.
bool Synchronization::arrive(uint32_t flat) {
  const uint32_t group = flat_plan_.steps[flat].group, barrier = barrier_of(flat_plan_.steps[flat]);
  const std::vector<uint32_t>& members = flat_plan_.barriers[barrier];
  arrived_[group] = 1;
  if (++arrivals_[barrier] != members.size()) return false;
  arrivals_[barrier] = 0;
  order_.push_back(flat);
  for (const uint32_t member : members) {
    arrived_[member] = 0;
    ++next_[member];
    if (member != group) runnable_.push_back(member);
    wake_step_waiters(member);
  }
  return true;
}

Synchronization::Blocker Synchronization::blocker_of(uint32_t flat) const {
  const FlatStep& flat_step = flat_plan_.steps[flat];
  const Step& step = *flat_step.step;
  const int rank = flat_plan_.rank_of(flat_step);
  spend(10 + step.after.size() + step.channels.size() * step.channels.size() + step.from.size() * step.from.size() +
        step.to.size() * step.to.size());
  for (const StepId& id : step.after) {
    const uint32_t group = flat_plan_.group_of(rank, id.group), end = flat_plan_.end_of(rank, id);
    if (next_[group] < end) return {Reason::step, group, end};
  }
  if (step.kind == StepKind::wait) {
    for (size_t i = 0; i < step.channels.size(); ++i) {
      const uint32_t channel = step.channels[i];
      uint32_t earlier = 0;
      for (size_t j = 0; j < i; ++j) earlier += step.channels[j] == channel ? 1 : 0;
      const uint64_t available = uint64_t{sent_[channel]} + flat_plan_.plan->channels[channel].initial;
      if (const SignalsNeeded* shared = shared_ == nullptr ? nullptr : shared_->needed(flat, i)) {
        if (available < shared->most) return {Reason::signal, channel, 0};
        continue;
      }
      if (available <= uint64_t{received_[channel]} + earlier) return {Reason::signal, channel, 0};
    }
    return {};
  }
  if (step.from.empty()) return {};
  if (const Blocker blocker = message_blocker(step.from); blocker.reason != Reason::ready) return blocker;
  if (flat_plan_.has_packets)
    if (const Blocker blocker = packet_blocker(flat_step); blocker.reason != Reason::ready) return blocker;
  return room_blocker(step.to);
}

Synchronization::Blocker Synchronization::message_blocker(const std::vector<Operand>& from) const {
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i].place != Place::message) continue;
    uint32_t needed = 1;
    for (size_t j = 0; j < i; ++j)
      needed += from[j].place == Place::message && from[j].channel == from[i].channel ? 1 : 0;
    if (sent_[from[i].channel] - received_[from[i].channel] < needed) return {Reason::message, from[i].channel, 0};
  }
  return {};
}

Synchronization::Blocker Synchronization::packet_blocker(const FlatStep& step) const {
  for (const Operand& operand : step.step->from) {
    if (!operand.packets) continue;
    uint32_t missing = none;
    spend(step.cells);
    each_range(flat_plan_, map_, step, operand, [&](int, uint32_t first) {
      for (uint32_t cell = first; cell < first + step.cells && missing == none; ++cell)
        if (!has_packets_[cell]) missing = cell;
    });
    if (missing != none) return {Reason::packets, missing, 0};
  }
  return {};
}

Synchronization::Blocker Synchronization::room_blocker(const std::vector<Operand>& to) const {
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i].place != Place::message) continue;
    uint32_t needed = 1;
    for (size_t j = 0; j < i; ++j) needed += to[j].place == Place::message && to[j].channel == to[i].channel ? 1 : 0;
    const uint32_t depth = depth_ != 0 ? depth_ : flat_plan_.plan->channels[to[i].channel].depth;
    const uint64_t in_flight = sent_[to[i].channel] - received_[to[i].channel];
    if (in_flight + needed > depth) return {Reason::room, to[i].channel, 0};
  }
  return {};
}

void Synchronization::complete(uint32_t flat) {
  order_.push_back(flat);
  const FlatStep& flat_step = flat_plan_.steps[flat];
  const Step& step = *flat_step.step;
  for (const uint32_t channel : step.channels) {
    if (step.kind == StepKind::signal) {
      ++sent_[channel];
      wake(message_waiters_, channel);
    } else if (step.kind == StepKind::wait) {
      ++received_[channel];
    }
  }
  for (const Operand& operand : step.from) {
    if (operand.place != Place::message) continue;
    ++received_[operand.channel];
    wake(room_waiters_, operand.channel);
  }
  for (const Operand& operand : step.to) {
    if (operand.place == Place::message) {
      ++sent_[operand.channel];
      wake(message_waiters_, operand.channel);
    } else if (operand.packets) {
      each_range(flat_plan_, map_, flat_step, operand, [&](int, uint32_t first) {
        spend(flat_step.cells);
        for (uint32_t cell = first; cell < first + flat_step.cells; ++cell) {
          has_packets_[cell] = 1;
          wake(packet_waiters_, cell);
        }
      });
    }
  }
}

void Synchronization::block(uint32_t group, const Blocker& blocker) {
  std::vector<uint32_t>* heads = nullptr;
  switch (blocker.reason) {
    case Reason::step: heads = &step_waiters_; break;
    case Reason::message:
    case Reason::signal: heads = &message_waiters_; break;
    case Reason::room: heads = &room_waiters_; break;
    case Reason::packets: heads = &packet_waiters_; break;
    default: return;
  }
  until_[group] = blocker.until;
  next_waiter_[group] = (*heads)[blocker.index];
  (*heads)[blocker.index] = group;
}

void Synchronization::wake(std::vector<uint32_t>& heads, uint32_t index) {
  for (uint32_t group = std::exchange(heads[index], none); group != none;) {
    runnable_.push_back(group);
    group = std::exchange(next_waiter_[group], none);
  }
}

void Synchronization::wake_step_waiters(uint32_t group) {
  uint32_t* link = &step_waiters_[group];
  while (*link != none) {
    spend(1);
    const uint32_t waiter = *link;
    if (next_[group] < until_[waiter]) {
      link = &next_waiter_[waiter];
      continue;
    }
    *link = std::exchange(next_waiter_[waiter], none);
    runnable_.push_back(waiter);
  }
}

uint32_t Synchronization::least_depth() {
  uint32_t most = 0;
  for (const FlatChannel& channel : flat_plan_.channels) most = std::max(most, channel.messages);
  if (most == 0 || !run(most)) return 0;
  uint32_t low = 1, high = most;  // high suffices
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (run(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

bool Synchronization::will_write_packets(uint32_t flat, uint32_t cell) const {
  const FlatStep& step = flat_plan_.steps[flat];
  bool found = false;
  for (const Operand& operand : step.step->to) {
    if (!operand.packets) continue;
    each_range(flat_plan_, map_, step, operand,
               [&](int, uint32_t first) { found |= cell >= first && cell < first + step.cells; });
  }
  return found;
}

uint32_t Synchronization::culprit(uint32_t group, const Blocker& blocker) const {
  // The first group with a remaining step that satisfies `wanted`.
  const auto find = [&](auto wanted) {
    spend(flat_plan_.groups.size() + flat_plan_.steps.size());
    for (uint32_t other = 0; other < flat_plan_.groups.size(); ++other)
      for (uint32_t flat = next_[other]; flat < flat_plan_.groups[other].end; ++flat)
        if (wanted(flat)) return other;
    return none;
  };
  switch (blocker.reason) {
    case Reason::step: return blocker.index;
    case Reason::message: return flat_plan_.channels[blocker.index].sender;
    case Reason::room: return flat_plan_.channels[blocker.index].receiver;
    case Reason::signal:
      return find([&](uint32_t flat) {
        const Step& step = *flat_plan_.steps[flat].step;
        return step.kind == StepKind::signal &&
               std::find(step.channels.begin(), step.channels.end(), blocker.index) != step.channels.end();
      });
    case Reason::packets: return find([&](uint32_t flat) { return will_write_packets(flat, blocker.index); });
    case Reason::barrier:
      for (const uint32_t member : flat_plan_.barriers[blocker.index])
        if (member != group && !arrived_[member]) return member;
      return none;
    default: return none;
  }
}

std::string Synchronization::describe_wait(uint32_t group, const Blocker& blocker, uint32_t culprit) const {
  const auto other = [&] {
    Where where;
    where.rank = flat_plan_.groups[culprit].rank;
    where.group = static_cast<int>(flat_plan_.groups[culprit].index);
    return describe(where);
  };
  const std::string index = std::to_string(blocker.index);
  switch (blocker.reason) {
    case Reason::step: {
      const uint32_t last = blocker.until - 1;
      return "waits until " + describe(flat_plan_.where(last)) + " has completed";
    }
    case Reason::message:
      return "waits for message " + std::to_string(received_[blocker.index]) + " on ring " + index + " from " + other();
    case Reason::room: {
      const uint32_t depth = depth_ != 0 ? depth_ : flat_plan_.plan->channels[blocker.index].depth;
      return "waits until " + other() + " receives message " + std::to_string(received_[blocker.index]) + " of ring " +
             index + ", which has a depth of " + std::to_string(depth);
    }
    case Reason::signal:
      return "waits for a signal of " + describe(*flat_plan_.plan, flat_plan_.groups[group].rank, blocker.index) +
             (culprit == none ? std::string(", which no remaining step sends") : " by " + other());
    case Reason::packets:
      return culprit == none ? "waits for packets that no step writes" : "waits for packets from " + other();
    case Reason::barrier:
      return "waits in barrier " +
             std::to_string(blocker.index -
                            flat_plan_.rank_barriers[static_cast<size_t>(flat_plan_.groups[group].rank)]) +
             " for " + other();
    default: return "can run";
  }
}

Finding Synchronization::deadlock() const {
  std::vector<uint32_t> path;
  std::vector<TraceStep> trace;
  std::vector<uint8_t> seen(flat_plan_.groups.size(), 0);
  uint32_t group = 0;
  while (next_[group] == flat_plan_.groups[group].end) ++group;
  while (group != none && !seen[group] && next_[group] != flat_plan_.groups[group].end) {
    seen[group] = 1;
    path.push_back(group);
    const uint32_t flat = next_[group];
    Blocker blocker = blocker_of(flat);
    if (blocker.reason == Reason::ready) blocker = {Reason::barrier, barrier_of(flat_plan_.steps[flat]), 0};
    const uint32_t next = culprit(group, blocker);
    trace.push_back({flat_plan_.where(flat), describe(flat_plan_, flat) + ": " + describe_wait(group, blocker, next)});
    group = next;
  }
  // Keep only the cycle.
  const auto start = std::find(path.begin(), path.end(), group) - path.begin();
  const bool is_cycle = static_cast<size_t>(start) != path.size();
  if (is_cycle)
    trace.erase(trace.begin(), trace.begin() + start);
  else
    trace.erase(trace.begin(), trace.end() - 1);
  Finding finding;
  finding.property = Property::deadlock;
  finding.where = trace.front().where;
  finding.message = is_cycle ? std::to_string(trace.size()) +
                                   " groups wait for each other: " + describe(trace.front().where) + " " +
                                   trace.front().text.substr(trace.front().text.rfind(": ") + 2)
                             : trace.front().text;
  if (is_cycle && trace.size() == 1) finding.message = "the group waits for itself: " + trace.front().text;
  finding.trace = std::move(trace);
  return finding;
}

}  // namespace narrowcast::plan::verify
