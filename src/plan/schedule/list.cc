#include "plan/schedule/list.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "plan/schedule/merged_groups.h"
#include "plan/simulate/agenda.h"
#include "plan/simulate/run.h"
#include "plan/simulate/sharing.h"

namespace narrowcast::plan::schedule {
namespace {

// Simulates the steps, and decides at every event which of them begin.
class ListScheduler {
 public:
  ListScheduler(const ListedSteps& steps, const std::vector<uint32_t>& groups, const StepGraph::Rules& rules,
                double interval_us)
      : nodes_(steps.nodes),
        programs_(steps.programs),
        rules_(rules),
        replicas_(steps.replicas),
        interval_us_(interval_us),
        states_(nodes_.size()),
        runs_(programs_.all.size()),
        link_use_(programs_.capacities.size()),
        events_(programs_.all.size()),
        sharing_(programs_, runs_, events_) {
    for (uint32_t program = 0; program < runs_.size(); ++program) {
      const auto [rank, group] = std::pair(programs_.all[program].rank, programs_.all[program].group);
      runs_[program].program = runs_[program].owner = program;
      first_.push_back(steps.first[rank][group]);
    }
    std::vector<std::vector<MergedGroups::Work>> work;
    for (const std::vector<uint32_t>& rank : steps.first) {
      work.emplace_back(rank.size());
      result_.order.emplace_back(rank.size());
    }
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      work[node.rank][node.group].load_us += node.duration;
      ++work[node.rank][node.group].steps;
      result_.order[node.rank][node.group].begin.push_back(0);
      longest_ = std::max(longest_, node.tail);
      states_[i].before = node.before;
      if (node.before == 0) events_.set(steps.launch_us, node.program);
    }
    for (size_t rank = 0; rank < work.size(); ++rank) {
      const uint32_t count = std::max<uint32_t>(1, groups[rank]);
      MergedGroups& merged = ranks_.emplace_back(std::move(work[rank]), count);
      if (!rules.assignments.empty())
        merged.assign(rules.assignments[rank]);
      else if (rules.divides_evenly)
        merged.divide_evenly();
      result_.busy_us.emplace_back(count);
    }
    result_.durations.resize(nodes_.size());
  }

  StepGraph::Schedule run() {
    while (!events_.empty()) {
      const double now = events_.first_time();
      std::set<uint32_t> changed;  // ranks
      while (!events_.empty() && events_.first_time() == now) {
        const uint32_t program = events_.next().run;
        if (handle_event(program, now)) changed.insert(programs_.all[program].rank);
      }
      for (uint32_t rank : changed) begin_steps(rank, now);
      sharing_.share(now);
      result_.microseconds = now;
    }
    for (const MergedGroups& rank : ranks_) result_.assignments.push_back(rank.assignment());
    return std::move(result_);
  }

 private:
  using Phase = simulate::Phase;
  struct State {                // of a node
    uint32_t before = 0;        // steps for which it still waits
    double earliest_begin = 0;  // that the others allow
  };

  // The place of a step among those that could begin. If several are about equal, the one that sends to the nearest
  // rank comes first, so that the ranks do not all send to the same one.
  ReadyStep ready_step(uint32_t index) const {
    constexpr double classes = 256;  // of paths: two in the same one are about equal
    const Node& node = nodes_[index];
    const auto class_of = [&](double us) { return longest_ > 0 ? static_cast<int64_t>(us / longest_ * classes) : 0; };
    const double added = rules_.lengthening.empty() ? 0 : rules_.lengthening[node.rank][node.group];
    const double tail_us = node.tail + added * longest_;
    const int64_t tail = class_of(tail_us);
    switch (rules_.priority) {
      case StepGraph::Priority::shortest_path: return {tail, node.turn, node.distance, index, node.group};
      case StepGraph::Priority::earliest_chunk: return {node.chunk, 0, node.distance, index, node.group};
      case StepGraph::Priority::staggered: {
        // Replicas have parts of each chunk, one after another.
        const double begin_us = node.chunk % replicas_ * interval_us_;
        return {class_of(begin_us - tail_us), 0, node.distance, index, node.group};
      }
      case StepGraph::Priority::longest_path: break;
    }
    return {-tail, 0, node.distance, index, node.group};
  }

  uint32_t node_of(uint32_t program) const { return first_[program] + static_cast<uint32_t>(runs_[program].task); }

  // A step of the program could begin, or has ended a phase. Returns whether steps of the rank could begin now.
  bool handle_event(uint32_t program, double now) {
    switch (runs_[program].phase) {
      case Phase::starting: {
        const uint32_t index = node_of(program);
        ranks_[nodes_[index].rank].add(ready_step(index));
        return true;
      }
      case Phase::working:
      case Phase::transferring:
        sharing_.end(program);
        end_phase(program, now);
        return false;
      case Phase::ending: complete(program, now); return true;
      case Phase::done: break;  // not used here
    }
    return false;
  }

  void begin_phase(uint32_t program, Phase phase, double now) {
    runs_[program].phase = phase;
    if (simulate::loads_of(programs_, runs_[program]).empty()) return end_phase(program, now);
    sharing_.begin(program, now);
  }
  void end_phase(uint32_t program, double now) {
    if (runs_[program].phase == Phase::working) return begin_phase(program, Phase::transferring, now);
    runs_[program].phase = Phase::ending;
    events_.set(now + nodes_[node_of(program)].fixed_us, program);
  }
  void complete(uint32_t program, double now) {
    simulate::Run& run = runs_[program];
    const uint32_t index = node_of(program);
    const Node& node = nodes_[index];
    MergedGroups& groups = ranks_[node.rank];
    groups.end(node.group);
    add_link_use(node, -1);
    result_.busy_us[node.rank][groups.assignment()[node.group]] += now - run.begin - node.fixed_us;
    result_.durations[index] = now - run.begin;
    ++run.task;
    run.phase = Phase::starting;
    for (const auto& [later, delay] : node.after) {
      State& state = states_[later];
      state.earliest_begin = std::max(state.earliest_begin, now + delay);
      if (--state.before == 0) events_.set(state.earliest_begin, nodes_[later].program);
    }
  }

  std::span<const simulate::Load> transfer_of(const Node& node) const {
    return programs_.transfer_of(programs_.all[node.program].tasks[node.step]);
  }
  // Adds what a step uses of links, on average while it runs, as a share of their rates. factor: 1, or -1 at its end.
  void add_link_use(const Node& node, double factor) {
    for (const simulate::Load& load : transfer_of(node)) {
      const double alone_us = load.times * load.amount / programs_.capacities[load.resource];
      link_use_[load.resource] += factor * alone_us / node.alone_us;
    }
  }
  bool needs_full_link(const Node& node) const {
    return std::ranges::any_of(
        transfer_of(node), [&](const simulate::Load& load) { return link_use_[load.resource] >= rules_.full_link; });
  }

  // Begins steps until no free merged group has one that could begin. If several transfers share a link, each takes
  // longer and keeps its group busy. So steps that need no full link come first, whatever their priority.
  void begin_steps(uint32_t rank, double now) {
    const auto spares_links = [&](const ReadyStep& step) { return !needs_full_link(nodes_[step.node]); };
    const auto is_any = [](const ReadyStep&) { return true; };
    MergedGroups& groups = ranks_[rank];
    if (rules_.full_link > 0)
      while (const std::optional<uint32_t> index = groups.begin_first(spares_links)) begin_step(*index, now);
    while (const std::optional<uint32_t> index = groups.begin_first(is_any)) begin_step(*index, now);
  }

  void begin_step(uint32_t index, double now) {
    const Node& node = nodes_[index];
    result_.order[node.rank][node.group].begin[node.step] = begun_++;
    runs_[node.program].begin = now;
    add_link_use(node, 1);
    begin_phase(node.program, Phase::working, now);
  }

  const std::vector<Node>& nodes_;
  const simulate::Programs& programs_;
  const StepGraph::Rules& rules_;
  const uint32_t replicas_;
  const double interval_us_;         // between their first steps
  double longest_ = 0;               // path
  std::vector<State> states_;        // by node
  std::vector<simulate::Run> runs_;  // by program
  std::vector<uint32_t> first_;      // by program, its first node
  std::vector<MergedGroups> ranks_;
  std::vector<double> link_use_;  // by resource, of the steps that run
  simulate::Agenda events_;
  simulate::Sharing sharing_;
  uint32_t begun_ = 0;  // steps
  StepGraph::Schedule result_;
};

}  // namespace

StepGraph::Schedule schedule_list(const ListedSteps& steps, const std::vector<uint32_t>& groups,
                                  const StepGraph::Rules& rules, double interval_us) {
  return ListScheduler(steps, groups, rules, interval_us).run();
}

}  // namespace narrowcast::plan::schedule
