#include "plan/simulate/simulation.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "plan/budget.h"
#include "plan/simulate/agenda.h"
#include "plan/simulate/calls.h"
#include "plan/simulate/kernel.h"
#include "plan/simulate/run.h"
#include "plan/simulate/sharing.h"
#include "plan/simulate/task_lists.h"

namespace narrowcast::plan::simulate {
namespace {

enum class Outcome : uint8_t { completes, is_stuck, takes_too_long };

class Simulation {
 public:
  // in_stages: whether steps are executed in stages_of().
  Simulation(const Plan& plan, const Machine& machine, const Options& options, const Batches& batches, bool in_stages)
      : plan_(plan),
        options_(options),
        batches_(batches.count),
        workers_(batches.workers),
        task_lists_(plan, machine, options, batches),
        calls_(plan, machine, task_lists_, options.repeats),
        busy_(task_lists_.all.size()),
        events_(task_lists_.all.size() * workers_),
        sharing_(task_lists_, runs_, events_) {
    memory_.grow(bytes_of_state(plan));
    if (in_stages) task_lists_.divide_into_stages();
    at_work_.resize(plan.ranks.size());
    for (uint32_t task_list = 0; task_list < task_lists_.all.size(); ++task_list)
      for (uint32_t worker = 0; worker < workers_; ++worker) {
        const auto index = static_cast<uint32_t>(runs_.size());
        runs_.push_back({.task_list = task_list, .worker = worker, .owner = index});
        ++at_work_[task_lists_.all[task_list].rank];
      }
    workers_end_ = static_cast<uint32_t>(runs_.size());
    for (uint32_t worker = 0; worker < workers_; ++worker) states_.emplace_back(plan, task_lists_);
  }

  Outcome run(Prediction* prediction) {
    for (uint32_t i = 0; i < workers_end_; ++i) begin_call(i, calls_.first_begin());
    while (true) {
      const bool time_goes_on = events_.empty() || events_.first_time() > now_;
      if (time_goes_on && sharing_.share(now_)) continue;
      if (events_.empty()) break;
      spend(100);
      const Event event = events_.next();
      now_ = std::max(now_, event.time);
      if (now_ > options_.most_us) return Outcome::takes_too_long;
      switch (runs_[event.run].phase) {
        case Phase::starting: start(event.run); break;
        case Phase::working:
        case Phase::transferring: end_loads(event.run); break;
        case Phase::ending: complete(event.run); break;
        case Phase::done: break;
      }
    }
    prediction->microseconds = calls_.microseconds();
    prediction->repeated_us = calls_.repeated_us();
    prediction->batches = batches_;
    prediction->sent_bytes = task_lists_.sent_bytes;
    prediction->timeline = std::move(timeline_);
    for (uint32_t rank = 0; rank < plan_.ranks.size(); ++rank) {
      const std::vector<uint32_t>& task_lists = task_lists_.task_list_of()[rank];
      for (uint32_t group = 0; group < task_lists.size(); ++group)
        if (const uint32_t task_list = task_lists[group]; task_list != TaskLists::none)
          prediction->groups.push_back({rank, group, busy_[task_list].total / static_cast<double>(calls_.count())});
    }
    const bool all_done = std::ranges::all_of(runs_, [](const Run& run) { return run.phase == Phase::done; });
    return all_done ? Outcome::completes : Outcome::is_stuck;
  }

 private:
  // Estimated memory of the workers.
  uint64_t bytes_of_state(const Plan& plan) const {
    uint64_t steps = 0;
    for (const TaskList& one : task_lists_.all) steps += one.tasks.size();
    return workers_ * (task_lists_.all.size() * 256 + (steps + 3 * plan.channels.size()) * sizeof(Awaited));
  }
  // State shared by the workers of the same number, which only communicate with each other.
  struct State {
    State(const Plan& plan, const TaskLists& task_lists)
        : messages(plan.channels.size()), credits(plan.channels.size()), in_flight(plan.channels.size()) {
      for (size_t i = 0; i < plan.channels.size(); ++i)
        if (plan.channels[i].kind != ChannelKind::ring) messages[i].arrivals.assign(plan.channels[i].initial, 0);
      for (const TaskList& task_list : task_lists.all)
        completed.emplace_back(plan.ranks[task_list.rank].groups[task_list.group].steps.size());
      for (const Rank& rank : plan.ranks) barriers.emplace_back(rank.barriers.size());
      packets.resize(task_lists.packet_cells());
    }

    std::vector<Awaited> messages;                             // by channel: messages, or signals
    std::vector<Awaited> credits;                              // by channel; without arrivals
    std::vector<uint32_t> in_flight;                           // by channel
    std::vector<std::vector<Awaited>> completed;               // by task list and step: one arrival per micro-batch
    std::vector<std::vector<std::vector<uint32_t>>> barriers;  // by rank and barrier: the runs that reached it
    std::vector<Awaited> packets;                              // by packet cell: one arrival per micro-batch
  };

  const TaskList& task_list(const Run& run) const { return task_lists_.all[run.task_list]; }
  const Task& task(const Run& run) const { return task_list(run).tasks[run.task]; }
  State& state(const Run& run) { return states_[run.worker]; }

  void wake(Awaited& awaited, double time) {
    for (uint32_t index : awaited.waiting) {
      // It may have been woken before.
      if (runs_[index].phase != Phase::starting) continue;
      events_.set(std::max(time, now_), index);
    }
    awaited.waiting.clear();
  }

  // The time of an arrival. `never` if it is not known yet; the run is then woken later.
  static double arrival(Awaited& awaited, uint32_t index, size_t number = 0) {
    if (number < awaited.arrivals.size()) return awaited.arrivals[number];
    awaited.waiting.push_back(index);
    return never;
  }

  // When the current task of a run can start; `never` if that is not known yet.
  double ready(uint32_t index) {
    const Run& run = runs_[index];
    const Task& current = task(run);
    const Step& step = *current.step;
    State& own = state(run);
    double time = now_;
    if (run.puts != 0 && orders_puts(step)) return never;  // woken when they have arrived
    for (const Operand& operand : step.from)
      if (operand.place == Place::message) time = std::max(time, arrival(own.messages[operand.channel], index));
    for (const Operand& operand : step.to) {
      if (operand.place != Place::message || own.in_flight[operand.channel] < plan_.channels[operand.channel].depth)
        continue;
      own.credits[operand.channel].waiting.push_back(index);
      time = never;
    }
    if (step.kind == StepKind::wait)
      for (uint32_t channel : step.channels) time = std::max(time, arrival(own.messages[channel], index));
    for (const StepId& id : step.after) {
      const uint32_t awaited = task_lists_.task_list_of()[task_list(run).rank][id.group];
      time = std::max(time, arrival(own.completed[awaited][id.step], index, batch_of(run)));
    }
    for (uint32_t cell : current.reads_packets) time = std::max(time, arrival(own.packets[cell], index, batch_of(run)));
    return time;
  }

  static bool orders_puts(const Step& step) {
    return step.kind == StepKind::signal || step.kind == StepKind::flush || step.kind == StepKind::barrier;
  }

  void start(uint32_t index) {
    Run& run = runs_[index];
    const double time = ready(index);
    if (time == never) return;  // woken later
    if (time > now_) return events_.set(time, index);
    const Step& step = *task(run).step;
    if (step.kind == StepKind::barrier && !run.at_barrier) return reach_barrier(index);
    State& own = state(run);
    load(&run);
    for (const Operand& operand : step.from)
      if (operand.place == Place::message) own.messages[operand.channel].arrivals.pop_front();
    if (step.kind == StepKind::wait)
      for (uint32_t channel : step.channels) own.messages[channel].arrivals.pop_front();
    for (const Operand& operand : step.to)
      if (operand.place == Place::message) ++own.in_flight[operand.channel];
    run.begin = now_;
    run.at_barrier = false;
    begin_loads(index, Phase::working);
  }

  // A warp loads the next payload while it handles one, if that has arrived.
  void load(Run* run) {
    const double load_us = task(*run).load_us;
    const auto arrived = [&] { return state(*run).messages[task(*run).step->from[0].channel].arrivals[0]; };
    run->loads_ahead = load_us > 0 && arrived() <= run->loaded;
    run->loaded = load_us == 0 ? -1 : now_ + (run->loads_ahead ? 0 : load_us);
  }

  void reach_barrier(uint32_t index) {
    const Run& run = runs_[index];
    const uint32_t rank = task_list(run).rank, barrier = task(run).step->barrier;
    std::vector<uint32_t>& reached = state(run).barriers[rank][barrier];
    reached.push_back(index);
    if (reached.size() < plan_.ranks[rank].barriers[barrier].size()) return;
    for (uint32_t member : std::exchange(reached, {})) {
      runs_[member].at_barrier = true;
      events_.set(now_, member);
    }
  }

  void begin_loads(uint32_t index, Phase phase) {
    Run& run = runs_[index];
    run.phase = phase;
    if (loads_of(task_lists_, run).empty()) return end_phase(index);
    Busy& busy = busy_[run.task_list];
    if (busy.working++ == 0) busy.since = now_;
    sharing_.begin(index, now_);
  }

  void end_loads(uint32_t index) {
    const Run& run = runs_[index];
    Busy& busy = busy_[run.task_list];
    if (--busy.working == 0) busy.total += now_ - busy.since;
    sharing_.end(index);
    end_phase(index);
  }

  void end_phase(uint32_t index) {
    Run& run = runs_[index];
    if (is_posted(index)) return arrive(index);
    if (run.phase == Phase::working && !task(run).posts) return begin_loads(index, Phase::transferring);
    run.phase = Phase::ending;
    events_.set(now_ + task(run).fixed_us + (run.loads_ahead ? 0 : task(run).load_us) +
                    (run.turn == task(run).stage ? task(run).first_us : 0),
                index);
  }

  // A posted transfer is a run of its own.
  bool is_posted(uint32_t index) const { return index >= workers_end_; }
  void post(uint32_t owner) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(runs_.size()));
      runs_.emplace_back();
      events_.grow(runs_.size());
    }
    const uint32_t index = free_.back();
    free_.pop_back();
    runs_[index] = runs_[owner];
    runs_[index].posted = now_;
    ++at_work_[task_list(runs_[index]).rank];
    if (task(runs_[index]).puts) ++runs_[owner].puts;
    begin_loads(index, Phase::transferring);
  }
  void arrive(uint32_t index) {
    Run& run = runs_[index];
    if (task(run).puts) {
      Run& owner = runs_[run.owner];
      if (--owner.puts == 0 && owner.phase == Phase::starting && run.call == owner.call) events_.set(now_, run.owner);
    }
    arrive_at_peers(run);
    run.phase = Phase::done;
    free_.push_back(index);
    end_work(index);
  }

  void complete(uint32_t index) {
    const Run& run = runs_[index];
    const Task& current = task(run);
    const Step& step = *current.step;
    State& own = state(run);
    for (const Operand& operand : step.from) {
      if (operand.place != Place::message) continue;
      --own.in_flight[operand.channel];
      wake(own.credits[operand.channel], now_);
    }
    if (step.kind == StepKind::signal)
      for (uint32_t channel : step.channels) deliver(own.messages[channel], now_ + task_lists_.latencies[channel]);
    if (current.posts)
      post(index);
    else
      arrive_at_peers(run);
    next_task(index);
  }

  // The end of a step and of its transfers.
  void arrive_at_peers(const Run& run) {
    const Task& current = task(run);
    State& own = state(run);
    double arrival = now_;  // of what it stored on other ranks
    for (const Operand& operand : current.step->to)
      if (operand.has_channel()) arrival = std::max(arrival, now_ + task_lists_.latencies[operand.channel]);
    calls_.extend(task_list(run).rank, run.call, arrival);
    if (options_.records_timeline && run.call == 0) {
      memory_.grow(sizeof(Interval));
      timeline_.push_back({task_list(run).rank, task_list(run).group, current.number,
                           run.worker + (run.turn - current.stage) * workers_, run.begin, now_});
    }
    for (uint32_t channel : current.sends) deliver(own.messages[channel], now_ + task_lists_.latencies[channel]);
    for (uint32_t cell : current.writes_packets) deliver(own.packets[cell], arrival);
    if (current.is_last_part) deliver(own.completed[run.task_list][current.number], now_);
  }

  void deliver(Awaited& awaited, double time) {
    memory_.grow(sizeof time);
    time = whole_ticks(time);
    awaited.arrivals.push_back(time);
    wake(awaited, time);
  }

  void begin_call(uint32_t index, double time) {
    Run& run = runs_[index];
    run.phase = Phase::starting;
    run.turn = 0;
    run.loaded = -1;
    if (!has_task(run)) advance(&run);
    events_.set(time, index);
  }
  void next_task(uint32_t index) {
    Run& run = runs_[index];
    const bool goes_on = advance(&run);
    run.phase = goes_on ? Phase::starting : Phase::done;
    if (goes_on)
      events_.set(now_, index);
    else
      end_work(index);
  }
  // Advances to the next task of the call. Returns false if there is none.
  bool advance(Run* run) const {
    do {
      if (++run->task != task_list(*run).tasks.size()) continue;
      run->task = 0;
      ++run->turns;
      if (++run->turn == batches_of(*run) + task_lists_.stages - 1) return false;
    } while (!has_task(*run));
    return true;
  }
  // Whether the worker has a micro-batch for the task in this turn.
  bool has_task(const Run& run) const {
    const uint32_t stage = task(run).stage;
    return stage <= run.turn && run.turn - stage < batches_of(run);
  }
  // The worker's micro-batches of a call.
  uint32_t batches_of(const Run& run) const { return (batches_ - run.worker + workers_ - 1) / workers_; }
  // The micro-batch of the task, among the worker's of all calls.
  size_t batch_of(const Run& run) const { return size_t{run.call} * batches_of(run) + run.turn - task(run).stage; }

  void end_work(uint32_t index) {
    const uint32_t rank = task_list(runs_[index]).rank;
    if (--at_work_[rank] != 0) return;
    calls_.end(rank);
    while (const std::optional<Calls::Begin> next = calls_.next()) {
      for (uint32_t i = 0; i < workers_end_; ++i) {
        if (task_list(runs_[i]).rank != next->rank) continue;
        ++runs_[i].call;
        ++at_work_[next->rank];
        begin_call(i, std::max(now_, next->time));
      }
    }
  }

  HeldMemory memory_;
  const Plan& plan_;
  const Options& options_;
  const uint32_t batches_, workers_;
  TaskLists task_lists_;
  Calls calls_;
  std::vector<Run> runs_;       // workers, then posted transfers
  uint32_t workers_end_ = 0;    // in runs_
  std::vector<uint32_t> free_;  // of the others, those that have ended
  std::vector<Busy> busy_;      // by task list
  std::vector<State> states_;   // by worker
  Agenda events_;
  Sharing sharing_;
  std::vector<Interval> timeline_;
  std::vector<uint32_t> at_work_;  // by rank, runs that have not ended their call
  double now_ = 0;
};

}  // namespace

bool simulate_batches(const Plan& plan, const Machine& machine, const Options& options, const Batches& batches,
                      Prediction* prediction) {
  const auto simulate = [&](bool in_stages) {
    *prediction = {};
    return Simulation(plan, machine, options, batches, in_stages).run(prediction);
  };
  Outcome outcome = simulate(batches.has_turns);
  // Stages need longer rings. Kernels do not use stages either if rings are too short.
  if (outcome == Outcome::is_stuck && batches.has_turns) outcome = simulate(false);
  return outcome == Outcome::completes;
}

}  // namespace narrowcast::plan::simulate
