#include "plan/schedule/list.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <ranges>
#include <set>
#include <tuple>
#include <utility>

#include "plan/simulate/agenda.h"
#include "plan/simulate/batches.h"
#include "plan/simulate/kernel.h"
#include "plan/simulate/program.h"
#include "plan/simulate/run.h"
#include "plan/simulate/sharing.h"

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

namespace {

constexpr double rounding = 1e-9;

constexpr uint32_t no_group = std::numeric_limits<uint32_t>::max();

// Simulates the steps, and decides at every event which of them begin.
class ListScheduler {
 public:
  ListScheduler(const std::vector<Node>& nodes, const simulate::Programs& programs,
                const std::vector<std::vector<uint32_t>>& first, const StepGraph::Rules& rules, uint32_t replicas,
                double launch_us, double interval_us)
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
    if (rules_.divides_evenly) divide_evenly();
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
  struct State {          // of a node
    uint32_t before = 0;  // steps for which it still waits
    double possible = 0;  // when it can begin at the earliest
  };
  struct GroupOfSteps {
    double load_us = 0;
    uint32_t steps = 0;
  };
  using Key = std::tuple<int64_t, uint32_t, uint32_t, uint32_t>;
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
      state.possible = std::max(state.possible, now + delay);
      if (--state.before == 0) events_.set(state.possible, nodes_[later].program);
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
    const auto spares_links = [&](const Key& key) { return !needs_full_link(nodes_[std::get<3>(key)]); };
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
      const Node& node = nodes_[std::get<3>(*first)];
      least->load_us += groups_[rank][node.group].load_us;
      result_.assignments[rank][node.group] = static_cast<uint32_t>(least - workers_[rank].data());
      first = least->ready.insert(unassigned_[rank].extract(first)).position;
      chosen = least;
    }
    if (chosen == nullptr) return false;
    begin_step(std::get<3>(*first), now);
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
        const auto longest = [&](const std::vector<simulate::Load>& loads) {
          double microseconds = 0;
          for (const simulate::Load& load : loads)
            microseconds = std::max(microseconds, load.times * load.amount / programs.capacities[load.resource]);
          return microseconds;
        };
        node.fixed_us = task.fixed_us;
        node.alone_us = node.duration = longest(task.work) + longest(task.transfer) + node.fixed_us;
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
  return ListScheduler(nodes_, model_->programs, first_, rules, replicas_, model_->launch_us, interval_us).run(groups);
}

}  // namespace narrowcast::plan::schedule
