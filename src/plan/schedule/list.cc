#include "plan/schedule/list.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

namespace narrowcast::plan::schedule {
namespace {

constexpr uint32_t none = std::numeric_limits<uint32_t>::max();

}  // namespace

StepGraph::StepGraph(const Plan& plan, const simulate::Machine& machine, const PlanTimes& times) : times_(times) {
  for (uint32_t rank = 0; rank < plan.ranks.size(); ++rank) {
    first_.emplace_back();
    for (uint32_t group = 0; group < plan.ranks[rank].groups.size(); ++group) {
      first_[rank].push_back(static_cast<uint32_t>(nodes_.size()));
      for (uint32_t step = 0; step < plan.ranks[rank].groups[group].steps.size(); ++step) {
        Node& node = nodes_.emplace_back();
        std::tie(node.rank, node.group, node.step) = std::tuple(rank, group, step);
        node.duration = times[rank][group].end[step] - times[rank][group].begin[step];
      }
    }
  }
  add_order(plan, machine);
  set_tails();
}

void StepGraph::add_order(const Plan& plan, const simulate::Machine& machine) {
  std::vector<std::vector<uint32_t>> sends(plan.channels.size()), receives(plan.channels.size());
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    const Step& step = plan.ranks[node.rank].groups[node.group].steps[node.step];
    if (node.step != 0) order(i - 1, i, 0);
    for (const StepId& id : step.after) order(first_[node.rank][id.group] + id.step, i, 0);
    for (const Operand& operand : step.to)
      if (operand.place == Place::message) {
        sends[operand.channel].push_back(i);
        const auto ranks = static_cast<uint32_t>(plan.ranks.size());
        const auto peer = static_cast<uint32_t>(plan.channels[operand.channel].to);
        node.distance = (peer + ranks - node.rank) % ranks;
      }
    for (const Operand& operand : step.from)
      if (operand.place == Place::message) receives[operand.channel].push_back(i);
  }
  for (uint32_t channel = 0; channel < plan.channels.size(); ++channel) {
    const Channel& ring = plan.channels[channel];
    const bool is_within = ring.from / machine.gpus_per_host == ring.to / machine.gpus_per_host;
    const double latency = is_within ? machine.link_latency_us : machine.network_latency_us;
    const size_t messages = sends[channel].size();
    for (size_t i = 0; i < messages; ++i) {
      order(sends[channel][i], receives[channel][i], latency);
      if (i + ring.depth < messages) order(receives[channel][i], sends[channel][i + ring.depth], 0);
    }
  }
}

void StepGraph::set_durations(const Schedule& schedule, const PlanTimes& merged) {
  std::vector<uint32_t> sequence(nodes_.size());
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    sequence[static_cast<size_t>(schedule.order[node.rank][node.group].begin[node.step])] = i;
  }
  std::vector<std::vector<uint32_t>> places;
  for (const std::vector<GroupTimes>& rank : merged) places.emplace_back(rank.size());
  for (uint32_t index : sequence) {
    Node& node = nodes_[index];
    const uint32_t group = schedule.assignments[node.rank][node.group];
    const uint32_t step = places[node.rank][group]++;
    node.duration = merged[node.rank][group].end[step] - merged[node.rank][group].begin[step];
  }
  set_tails();
}

void StepGraph::set_tails() {
  std::vector<uint32_t> before, ready;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    before.push_back(nodes_[i].before);
    if (before[i] == 0) ready.push_back(i);
  }
  for (size_t next = 0; next < ready.size(); ++next)
    for (const auto& [later, delay] : nodes_[ready[next]].after)
      if (--before[later] == 0) ready.push_back(later);
  std::ranges::reverse(ready);
  for (uint32_t i : ready) {
    Node& node = nodes_[i];
    node.tail = 0;
    for (const auto& [later, delay] : node.after) node.tail = std::max(node.tail, delay + nodes_[later].tail);
    node.tail += node.duration;
  }
}

StepGraph::Schedule StepGraph::schedule(const std::vector<uint32_t>& groups) const {
  struct Event {
    double time;
    uint32_t node;
    bool ends;  // or can begin
    bool operator>(const Event& other) const {
      return std::tuple(time, !ends, node) > std::tuple(other.time, !other.ends, other.node);
    }
  };
  struct Worker {
    bool is_free = true;
    double load_us = 0;  // of all steps of the groups that it has
  };
  Schedule result{{}, times_};
  std::vector<std::vector<double>> loads;
  loads.reserve(first_.size());
  for (const std::vector<uint32_t>& groups_of_rank : first_) loads.emplace_back(groups_of_rank.size());
  for (const Node& node : nodes_) loads[node.rank][node.group] += node.duration;
  std::vector<std::vector<Worker>> workers;
  for (size_t rank = 0; rank < first_.size(); ++rank) {
    workers.emplace_back(std::max<uint32_t>(1, groups[rank]));
    result.assignments.emplace_back(first_[rank].size(), none);
  }
  // By rank, the steps that could begin, those with the longest tails first. Of about equal ones those to the nearest
  // rank, so that the ranks do not all send to the same one.
  std::vector<std::set<std::tuple<double, uint32_t, uint32_t>>> ready(first_.size());
  double longest = 0;
  for (const Node& node : nodes_) longest = std::max(longest, node.tail);
  const auto key = [&](uint32_t index) {
    constexpr double classes = 256;
    const Node& node = nodes_[index];
    const double tail = longest > 0 ? std::floor(node.tail / longest * classes) : 0;
    return std::tuple(-tail, node.distance, index);
  };
  std::vector<uint32_t> before;
  std::vector<double> possible(nodes_.size());
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    before.push_back(nodes_[i].before);
    if (before[i] == 0) events.push({0, i, false});
  }
  uint32_t begun = 0;
  const auto begin_steps = [&](uint32_t rank, double now) {
    std::vector<Worker>& all = workers[rank];
    for (auto one = ready[rank].begin(); one != ready[rank].end();) {
      const uint32_t index = std::get<2>(*one);
      const Node& node = nodes_[index];
      uint32_t& assigned = result.assignments[rank][node.group];
      uint32_t chosen = assigned;
      if (chosen == none) {
        for (uint32_t i = 0; i < all.size(); ++i)
          if (all[i].is_free && (chosen == none || all[i].load_us < all[chosen].load_us)) chosen = i;
        if (chosen == none) return;  // all are busy
        all[chosen].load_us += loads[rank][node.group];
      } else if (!all[chosen].is_free) {
        ++one;
        continue;
      }
      assigned = chosen;
      all[chosen].is_free = false;
      result.order[rank][node.group].begin[node.step] = begun++;
      events.push({now + node.duration, index, true});
      one = ready[rank].erase(one);
    }
  };
  while (!events.empty()) {
    const double now = events.top().time;
    std::set<uint32_t> changed;  // ranks
    for (; !events.empty() && events.top().time <= now; events.pop()) {
      const Event event = events.top();
      const Node& node = nodes_[event.node];
      changed.insert(node.rank);
      if (!event.ends) {
        ready[node.rank].insert(key(event.node));
        continue;
      }
      workers[node.rank][result.assignments[node.rank][node.group]].is_free = true;
      for (const auto& [later, delay] : node.after) {
        possible[later] = std::max(possible[later], now + delay);
        if (--before[later] == 0) events.push({possible[later], later, false});
      }
    }
    for (uint32_t rank : changed) begin_steps(rank, now);
  }
  return result;
}

}  // namespace narrowcast::plan::schedule
