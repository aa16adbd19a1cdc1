#include "plan/schedule/list.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <queue>
#include <ranges>
#include <set>
#include <span>
#include <utility>

#include "plan/schedule/merged_groups.h"
#include "plan/simulate/batches.h"
#include "plan/simulate/task_lists.h"

namespace narrowcast::plan::schedule {
namespace {

// The duration of the longest load.
double microseconds_of(std::span<const simulate::Load> loads, const simulate::TaskLists& task_lists) {
  double longest = 0;
  for (const simulate::Load& load : loads)
    longest = std::max(longest, load.times * load.amount / task_lists.capacities[load.resource]);
  return longest;
}

}  // namespace

StepGraph::StepGraph(const Plan& parts, const simulate::Machine& machine, const simulate::Options& simulation) {
  const simulate::TaskLists task_lists(parts, machine, simulation, simulate::batches_of(parts, machine, simulation));
  links_ = task_lists.capacities.size();
  for (uint32_t rank = 0; rank < parts.ranks.size(); ++rank) {
    first_.emplace_back();
    for (uint32_t group = 0; group < parts.ranks[rank].groups.size(); ++group) {
      first_[rank].push_back(static_cast<uint32_t>(nodes_.size()));
      const std::vector<simulate::Task>& tasks = task_lists.all[task_lists.task_list_of()[rank][group]].tasks;
      for (uint32_t step = 0; step < parts.ranks[rank].groups[group].steps.size(); ++step) {
        const std::span<const simulate::Load> transfer = task_lists.transfer_of(tasks[step]);
        Node& node = nodes_.emplace_back(rank, group, step);
        node.duration = microseconds_of(task_lists.work_of(tasks[step]), task_lists) +
                        microseconds_of(transfer, task_lists) + tasks[step].fixed_us;
        for (const simulate::Load& load : transfer)
          if (const double microseconds = microseconds_of({&load, 1}, task_lists); microseconds > 0)
            node.links.push_back({load.resource, microseconds / node.duration});
      }
    }
  }
  add_order(parts);
  sort();
  set_tails();
}

std::vector<double> StepGraph::work_us() const {
  std::vector<double> work_us(first_.size());
  for (const Node& node : nodes_) work_us[node.rank] += node.duration;
  return work_us;
}

void StepGraph::add_order(const Plan& parts) {
  std::vector<std::vector<uint32_t>> sends(parts.channels.size()), receives(parts.channels.size());
  const auto ranks = static_cast<uint32_t>(parts.ranks.size());
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    const Step& step = parts.ranks[node.rank].groups[node.group].steps[node.step];
    if (node.step != 0) order(i - 1, i);
    for (const StepId& id : step.after) order(first_[node.rank][id.group] + id.step, i);
    for (const Operand& operand : step.to)
      if (operand.place == Place::message) {
        sends[operand.channel].push_back(i);
        node.distance = (static_cast<uint32_t>(parts.channels[operand.channel].to) + ranks - node.rank) % ranks;
      }
    for (const Operand& operand : step.from)
      if (operand.place == Place::message) receives[operand.channel].push_back(i);
  }
  for (uint32_t channel = 0; channel < parts.channels.size(); ++channel)
    for (size_t i = 0; i < sends[channel].size(); ++i) {
      order(sends[channel][i], receives[channel][i]);
      const size_t next = i + parts.channels[channel].depth;
      if (next < sends[channel].size()) order(receives[channel][i], sends[channel][next]);
    }
}

void StepGraph::sort() {
  std::vector<uint32_t> before;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    before.push_back(nodes_[i].before);
    if (before[i] == 0) sorted_.push_back(i);
  }
  for (size_t next = 0; next < sorted_.size(); ++next)
    for (uint32_t later : nodes_[sorted_[next]].after)
      if (--before[later] == 0) sorted_.push_back(later);
}

void StepGraph::set_tails() {
  for (uint32_t i : std::views::reverse(sorted_)) {
    Node& node = nodes_[i];
    for (uint32_t later : node.after) node.tail = std::max(node.tail, nodes_[later].tail);
    node.tail += node.duration;
  }
}

class ListScheduler {
 public:
  ListScheduler(const StepGraph& graph, const std::vector<uint32_t>& groups, bool divides_evenly)
      : nodes_(graph.nodes_), link_use_(graph.links_) {
    std::vector<std::vector<MergedGroups::Work>> work;
    for (const std::vector<uint32_t>& rank : graph.first_) {
      work.emplace_back(rank.size());
      result_.order.emplace_back(rank.size());
    }
    for (const Node& node : nodes_) {
      work[node.rank][node.group].load_us += node.duration;
      ++work[node.rank][node.group].steps;
      result_.order[node.rank][node.group].begin.push_back(0);
      longest_ = std::max(longest_, node.tail);
      before_.push_back(node.before);
    }
    for (size_t rank = 0; rank < work.size(); ++rank) {
      ranks_.emplace_back(std::move(work[rank]), groups[rank]);
      if (divides_evenly) ranks_.back().divide_evenly();
    }
  }

  StepGraph::Schedule run() {
    for (uint32_t i = 0; i < nodes_.size(); ++i)
      if (before_[i] == 0) ranks_[nodes_[i].rank].add(ready_step(i));
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) begin_steps(rank, 0);
    while (!ends_.empty()) {
      const double now = ends_.top().first;
      std::set<uint32_t> changed;  // ranks
      for (; !ends_.empty() && ends_.top().first == now; ends_.pop()) end_step(ends_.top().second, &changed);
      for (uint32_t rank : changed) begin_steps(rank, now);
    }
    for (const MergedGroups& rank : ranks_) result_.assignments.push_back(rank.assignment());
    return std::move(result_);
  }

 private:
  using Node = StepGraph::Node;

  // The rank of a step among ready steps. Of steps with about equal paths, the one that sends to the nearest rank comes
  // first, so that not all ranks send to the same one.
  ReadyStep ready_step(uint32_t index) const {
    constexpr double classes = 256;  // of path lengths: two in the same class are about equal
    const Node& node = nodes_[index];
    const auto tail = static_cast<int64_t>(longest_ > 0 ? node.tail / longest_ * classes : 0);
    return {-tail, node.distance, index, node.group};
  }

  // Starts steps until no free merged group has a ready one. Transfers that share a full link take longer and occupy
  // their groups, so steps that do not need a full link come first, whatever their priority.
  void begin_steps(uint32_t rank, double now) {
    constexpr double full = 0.999;
    const auto spares_links = [&](const ReadyStep& step) {
      return std::ranges::all_of(nodes_[step.node].links,
                                 [&](const StepGraph::LinkUse& use) { return link_use_[use.link] < full; });
    };
    const auto is_any = [](const ReadyStep&) { return true; };
    MergedGroups& groups = ranks_[rank];
    while (const std::optional<uint32_t> index = groups.begin_first(spares_links)) begin_step(*index, now);
    while (const std::optional<uint32_t> index = groups.begin_first(is_any)) begin_step(*index, now);
  }

  void begin_step(uint32_t index, double now) {
    const Node& node = nodes_[index];
    add_link_use(node, 1);
    result_.order[node.rank][node.group].begin[node.step] = begun_++;
    ends_.emplace(now + node.duration, index);
  }

  void add_link_use(const Node& node, double factor) {
    for (const StepGraph::LinkUse& use : node.links) link_use_[use.link] += factor * use.share;
  }

  void end_step(uint32_t index, std::set<uint32_t>* changed) {
    const Node& node = nodes_[index];
    ranks_[node.rank].end(node.group);
    add_link_use(node, -1);
    changed->insert(node.rank);
    for (uint32_t later : node.after) {
      if (--before_[later] != 0) continue;
      ranks_[nodes_[later].rank].add(ready_step(later));
      changed->insert(nodes_[later].rank);
    }
  }

  const std::vector<Node>& nodes_;
  double longest_ = 0;            // path
  std::vector<uint32_t> before_;  // by node: dependences that have not completed
  std::vector<MergedGroups> ranks_;
  std::vector<double> link_use_;            // by link, of the steps that run
  using End = std::pair<double, uint32_t>;  // of a step: its time and node
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  uint32_t begun_ = 0;  // steps
  StepGraph::Schedule result_;
};

StepGraph::Schedule StepGraph::schedule(const std::vector<uint32_t>& groups, bool divides_evenly) const {
  return ListScheduler(*this, groups, divides_evenly).run();
}

}  // namespace narrowcast::plan::schedule
