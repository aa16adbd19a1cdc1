#include "plan/schedule/step_graph.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <ranges>
#include <span>
#include <utility>

#include "plan/schedule/list.h"
#include "plan/simulate/batches.h"
#include "plan/simulate/kernel.h"
#include "plan/simulate/program.h"

namespace narrowcast::plan::schedule {

struct StepGraph::Model {
  Model(const Plan& plan, const simulate::Machine& machine, const simulate::Options& simulation)
      : options(simulation),
        programs(plan, machine, options, simulate::batches_of(plan, machine, options)),
        launch_us(simulate::launch_us_of(plan, machine)) {}

  const simulate::Options options;
  const simulate::Programs programs;
  const double launch_us;
};

StepGraph::StepGraph(const Plan& plan, const simulate::Machine& machine, const simulate::Options& simulation,
                     uint32_t replicas)
    : model_(std::make_shared<Model>(plan, machine, simulation)), replicas_(replicas) {
  const simulate::Programs& programs = model_->programs;
  for (uint32_t rank = 0; rank < plan.ranks.size(); ++rank) {
    first_.emplace_back();
    if (programs.rank_for(rank) != rank) continue;
    for (uint32_t group = 0; group < plan.ranks[rank].groups.size(); ++group) {
      first_[rank].push_back(static_cast<uint32_t>(nodes_.size()));
      const std::vector<Step>& steps = plan.ranks[rank].groups[group].steps;
      for (uint32_t step = 0; step < steps.size(); ++step) {
        Node& node = nodes_.emplace_back();
        std::tie(node.rank, node.group, node.step) = std::tuple(rank, group, step);
        node.program = programs.program_of()[rank][group];
        const simulate::Task& task = programs.all[node.program].tasks[step];
        const auto longest = [&](std::span<const simulate::Load> loads) {
          double microseconds = 0;
          for (const simulate::Load& load : loads)
            microseconds = std::max(microseconds, load.times * load.amount / programs.capacities[load.resource]);
          return microseconds;
        };
        node.fixed_us = task.fixed_us;
        node.alone_us = node.duration =
            longest(programs.work_of(task)) + longest(programs.transfer_of(task)) + node.fixed_us;
      }
    }
  }
  add_order(plan, programs);
  set_tails();
  held_us_.resize(first_.size());
  for (const Node& node : nodes_) {
    held_us_[node.rank] += node.alone_us;
    longest_us_ = std::max(longest_us_, node.tail);
  }
  set_turns(plan);
}

void StepGraph::add_order(const Plan& plan, const simulate::Programs& programs) {
  std::vector<std::vector<uint32_t>> sends(plan.channels.size()), receives(plan.channels.size());
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    const Step& step = plan.ranks[node.rank].groups[node.group].steps[node.step];
    if (node.step != 0) order(i - 1, i, 0);
    for (const StepId& id : step.after) order(first_[node.rank][id.group] + id.step, i, 0);
    for (const Operand& operand : step.to)
      if (operand.place == Place::message) {
        sends[programs.channel_for(operand.channel)].push_back(i);
        const auto ranks = static_cast<uint32_t>(plan.ranks.size());
        const auto peer = static_cast<uint32_t>(plan.channels[operand.channel].to);
        node.distance = (peer + ranks - node.rank) % ranks;
      }
    for (const Operand& operand : step.from)
      if (operand.place == Place::message) receives[programs.channel_for(operand.channel)].push_back(i);
  }
  for (uint32_t channel = 0; channel < plan.channels.size(); ++channel) {
    const size_t messages = sends[channel].size(), depth = plan.channels[channel].depth;
    for (size_t i = 0; i < messages; ++i) {
      order(sends[channel][i], receives[channel][i], programs.latencies[channel]);
      if (i + depth < messages) order(receives[channel][i], sends[channel][i + depth], 0);
    }
  }
}

void StepGraph::set_durations(const std::vector<double>& durations) {
  for (uint32_t i = 0; i < nodes_.size(); ++i) nodes_[i].duration = durations[i];
  set_tails();
}

double StepGraph::least_us(const std::vector<uint32_t>& groups) const {
  double least = longest_us_;
  for (size_t rank = 0; rank < held_us_.size(); ++rank)
    least = std::max(least, held_us_[rank] / std::max(1u, groups[rank]));
  return least;
}

uint32_t StepGraph::least_groups(uint32_t rank, double microseconds) const {
  constexpr double rounding = 1e-9;
  return static_cast<uint32_t>(std::ceil(held_us_[rank] / microseconds * (1 - rounding)));
}

std::vector<uint32_t> StepGraph::sorted() const {
  std::vector<uint32_t> before, result;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    before.push_back(nodes_[i].before);
    if (before[i] == 0) result.push_back(i);
  }
  for (size_t next = 0; next < result.size(); ++next)
    for (const auto& [later, delay] : nodes_[result[next]].after)
      if (--before[later] == 0) result.push_back(later);
  return result;
}

void StepGraph::set_tails() {
  for (uint32_t i : std::views::reverse(sorted())) {
    Node& node = nodes_[i];
    node.tail = 0;
    for (const auto& [later, delay] : node.after) node.tail = std::max(node.tail, delay + nodes_[later].tail);
    node.tail += node.duration;
  }
}

// The last steps of a rank take turns in the order of their chunks, beginning with the rank's own share of these, so
// that the ranks do not all need the same peer first.
void StepGraph::set_turns(const Plan& plan) {
  const auto chunk_of = [&](const Node& node) {
    const Step& step = plan.ranks[node.rank].groups[node.group].steps[node.step];
    const auto local = std::ranges::find(step.to, Place::local, &Operand::place);
    return local == step.to.end() ? 0 : local->chunk;
  };
  uint32_t chunks = 1;
  for (const Node& node : nodes_)
    if (node.after.empty()) chunks = std::max(chunks, chunk_of(node) + 1);
  for (uint32_t i : std::views::reverse(sorted())) {
    Node& node = nodes_[i];
    if (node.after.empty()) {
      const auto own = static_cast<uint32_t>(uint64_t{chunks} * node.rank / plan.ranks.size());
      node.chunk = chunk_of(node);
      node.turn = (node.chunk + chunks - own) % chunks;
      continue;
    }
    node.chunk = node.turn = std::numeric_limits<uint32_t>::max();
    for (const auto& [later, delay] : node.after) {
      node.chunk = std::min(node.chunk, nodes_[later].chunk);
      node.turn = std::min(node.turn, nodes_[later].turn);
    }
  }
}

StepGraph::Schedule StepGraph::schedule(const std::vector<uint32_t>& groups, const Rules& rules) const {
  const double interval_us = rules.interval * least_us(groups) / replicas_;
  return schedule_list({nodes_, first_, model_->programs, model_->launch_us, replicas_}, groups, rules, interval_us);
}

}  // namespace narrowcast::plan::schedule
