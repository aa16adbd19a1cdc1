#include "plan/schedule/list.h"

#include <algorithm>
#include <compare>
#include <limits>
#include <set>
#include <utility>

#include "plan/simulate/agenda.h"
#include "plan/simulate/run.h"
#include "plan/simulate/sharing.h"

namespace narrowcast::plan::schedule {
namespace {

constexpr uint32_t no_group = std::numeric_limits<uint32_t>::max();

// Simulates the steps, and decides at every event which of them begin.
class ListScheduler {
 public:
  ListScheduler(const std::vector<Node>& nodes, const std::vector<std::vector<uint32_t>>& first,
                const simulate::Programs& programs, const StepGraph::Rules& rules, uint32_t replicas, double launch_us,
                double interval_us)
      : nodes_(nodes),
        programs_(programs),
        rules_(rules),
        replicas_(replicas),
        interval_us_(interval_us),
        states_(nodes.size()),
        runs_(programs.all.size()),
        unassigned_(first.size()),
        link_use_(programs.capacities.size()),
        events_(programs.all.size()),
        sharing_(programs, runs_, events_) {
    for (uint32_t program = 0; program < runs_.size(); ++program) {
      const auto [rank, group] = std::pair(programs.all[program].rank, programs.all[program].group);
      runs_[program].program = runs_[program].owner = program;
      first_.push_back(first[rank][group]);
    }
    for (const std::vector<uint32_t>& groups : first) {
      groups_.emplace_back(groups.size());
      result_.assignments.emplace_back(groups.size(), no_group);
      result_.order.emplace_back(groups.size());
    }
    for (uint32_t i = 0; i < nodes.size(); ++i) {
      const Node& node = nodes[i];
      groups_[node.rank][node.group].load_us += node.duration;
      ++groups_[node.rank][node.group].steps;
      result_.order[node.rank][node.group].begin.push_back(0);
      longest_ = std::max(longest_, node.tail);
      states_[i].before = node.before;
      if (node.before == 0) events_.set(launch_us, node.program);
    }
    result_.durations.resize(nodes.size());
  }

  StepGraph::Schedule run(const std::vector<uint32_t>& groups) {
    for (uint32_t count : groups) workers_.emplace_back(std::max<uint32_t>(1, count));
    for (const std::vector<Worker>& workers : workers_) result_.busy_us.emplace_back(workers.size());
    if (!rules_.assignments.empty()) {
      result_.assignments = rules_.assignments;
    } else if (rules_.divides_evenly) {
      divide_evenly();
    }
    while (!events_.empty()) {
      const double now = events_.first_time();
      std::set<uint32_t> changed;  // ranks
      while (!events_.empty() && events_.first_time() == now) {
        const uint32_t program = events_.next().run;
        if (go_on(program, now)) changed.insert(programs_.all[program].rank);
      }
      for (uint32_t rank : changed) begin_steps(rank, now);
      sharing_.share(now);
      result_.microseconds = now;
    }
    return std::move(result_);
  }

 private:
  using Phase = simulate::Phase;
  struct State {                // of a node
    uint32_t before = 0;        // steps for which it still waits
    double earliest_begin = 0;  // that the others allow
  };
  struct GroupOfSteps {
    double load_us = 0;
    uint32_t steps = 0;
  };
  struct Key {         // of a step that could begin: the least one comes first
    int64_t priority;  // by Rules::priority
    uint32_t turn, distance, index;
    auto operator<=>(const Key&) const = default;
  };
  struct Worker {  // a merged group
    bool is_free = true;
    double load_us = 0;   // of all steps of the groups that it has
    std::set<Key> ready;  // steps of these groups that could begin
  };

  // The largest groups first, each to the merged group with the least work. Groups of one step can go anywhere later.
  void divide_evenly() {
    for (size_t rank = 0; rank < groups_.size(); ++rank) {
      const std::vector<GroupOfSteps>& groups = groups_[rank];
      std::vector<uint32_t> order;
      for (uint32_t group = 0; group < groups.size(); ++group)
        if (groups[group].steps > 1) order.push_back(group);
      std::ranges::sort(order, {}, [&](uint32_t group) { return std::pair(-groups[group].load_us, group); });
      for (uint32_t group : order) {
        const auto least = std::ranges::min_element(workers_[rank], {}, &Worker::load_us);
        least->load_us += groups[group].load_us;
        result_.assignments[rank][group] = static_cast<uint32_t>(least - workers_[rank].begin());
      }
    }
  }

  // The place of a step among those that could begin. If several are about equal, the one that sends to the nearest
  // rank comes first, so that the ranks do not all send to the same one.
  Key key(uint32_t index) const {
    constexpr double classes = 256;  // of paths: two in the same one are about equal
    const Node& node = nodes_[index];
    const auto class_of = [&](double us) { return longest_ > 0 ? static_cast<int64_t>(us / longest_ * classes) : 0; };
    const int64_t tail = class_of(node.tail);
    switch (rules_.priority) {
      case StepGraph::Priority::shortest_path: return {tail, node.turn, node.distance, index};
      case StepGraph::Priority::earliest_chunk: return {node.chunk, 0, node.distance, index};
      case StepGraph::Priority::staggered: {
        // Replicas have parts of each chunk, one after another.
        const double begin_us = node.chunk % replicas_ * interval_us_;
        return {class_of(begin_us - node.tail), 0, node.distance, index};
      }
      case StepGraph::Priority::longest_path: break;
    }
    return {-tail, 0, node.distance, index};
  }

  uint32_t node_of(uint32_t program) const { return first_[program] + static_cast<uint32_t>(runs_[program].task); }

  // The next phase of a group's step. Returns whether steps of its rank could begin now.
  bool go_on(uint32_t program, double now) {
    switch (runs_[program].phase) {
      case Phase::working:
      case Phase::transferring:
        sharing_.end(program);
        end_phase(program, now);
        return false;
      case Phase::ending: complete(program, now); return true;
      case Phase::starting:
      case Phase::done: break;
    }
    const uint32_t index = node_of(program);
    const Node& node = nodes_[index];
    const uint32_t assigned = result_.assignments[node.rank][node.group];
    (assigned == no_group ? unassigned_[node.rank] : workers_[node.rank][assigned].ready).insert(key(index));
    return true;
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
    const uint32_t worker = result_.assignments[node.rank][node.group];
    workers_[node.rank][worker].is_free = true;
    add_link_use(node, -1);
    result_.busy_us[node.rank][worker] += now - run.begin - node.fixed_us;
    result_.durations[index] = now - run.begin;
    ++run.task;
    run.phase = Phase::starting;
    for (const auto& [later, delay] : node.after) {
      State& state = states_[later];
      state.earliest_begin = std::max(state.earliest_begin, now + delay);
      if (--state.before == 0) events_.set(state.earliest_begin, nodes_[later].program);
    }
  }

  const std::vector<simulate::Load>& transfer_of(const Node& node) const {
    return programs_.all[node.program].tasks[node.step].transfer;
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
    const auto spares_links = [&](const Key& key) { return !needs_full_link(nodes_[key.index]); };
    while (rules_.full_link > 0 && begin_first(rank, now, spares_links)) {
    }
    while (begin_first(rank, now, [](const Key&) { return true; })) {
    }
  }

  // Begins the first of the steps that could begin in a free merged group and are eligible. Returns false if there is
  // none.
  template <typename IsEligible>
  bool begin_first(uint32_t rank, double now, IsEligible is_eligible) {
    Worker* least = nullptr;   // loaded, of the free ones
    Worker* chosen = nullptr;  // that has the first step
    std::set<Key>::iterator first;
    const auto has_earlier = [&](std::set<Key>& ready) {
      const auto found = std::ranges::find_if(ready, is_eligible);
      if (found == ready.end() || (chosen != nullptr && *first < *found)) return false;
      first = found;
      return true;
    };
    for (Worker& worker : workers_[rank]) {
      if (!worker.is_free) continue;
      if (least == nullptr || worker.load_us < least->load_us) least = &worker;
      if (has_earlier(worker.ready)) chosen = &worker;
    }
    if (least == nullptr) return false;
    if (has_earlier(unassigned_[rank])) {
      const Node& node = nodes_[first->index];
      least->load_us += groups_[rank][node.group].load_us;
      result_.assignments[rank][node.group] = static_cast<uint32_t>(least - workers_[rank].data());
      first = least->ready.insert(unassigned_[rank].extract(first)).position;
      chosen = least;
    }
    if (chosen == nullptr) return false;
    begin_step(first->index, now);
    chosen->ready.erase(first);
    chosen->is_free = false;
    return true;
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
  const double interval_us_;                       // between their first steps
  double longest_ = 0;                             // path
  std::vector<State> states_;                      // by node
  std::vector<simulate::Run> runs_;                // by program
  std::vector<uint32_t> first_;                    // by program, its first node
  std::vector<std::vector<GroupOfSteps>> groups_;  // by rank
  std::vector<std::vector<Worker>> workers_;       // by rank
  std::vector<std::set<Key>> unassigned_;          // by rank, steps that could begin, of groups without a merged one
  std::vector<double> link_use_;                   // by resource, of the steps that run
  simulate::Agenda events_;
  simulate::Sharing sharing_;
  uint32_t begun_ = 0;  // steps
  StepGraph::Schedule result_;
};

}  // namespace

StepGraph::Schedule schedule_list(const std::vector<Node>& nodes, const std::vector<std::vector<uint32_t>>& first,
                                  const simulate::Programs& programs, const std::vector<uint32_t>& groups,
                                  const StepGraph::Rules& rules, uint32_t replicas, double launch_us,
                                  double interval_us) {
  return ListScheduler(nodes, first, programs, rules, replicas, launch_us, interval_us).run(groups);
}

}  // namespace narrowcast::plan::schedule
