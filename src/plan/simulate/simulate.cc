#include "plan/simulate/simulate.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <queue>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "plan/simulate/batches.h"
#include "plan/simulate/program.h"
#include "status/error.h"

namespace narrowcast::plan::simulate {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

// Something that groups wait for: messages, credits, signals, completed steps, packets.
struct Awaited {
  std::deque<double> arrivals;    // when each that has not been taken arrives, or arrived
  std::vector<uint32_t> waiting;  // runs
};

enum class Phase : uint8_t { starting, transferring, ending, done };

// A worker: it executes a program for its micro-batches, one after another.
struct Run {
  uint32_t program = 0;
  uint32_t worker = 0;  // of the program
  uint32_t batch = 0;
  size_t task = 0;
  Phase phase = Phase::starting;
  double left = 0;       // of the transfer, from 1 to 0
  double rate = 0;       // of progress per microsecond
  double updated = 0;    // when `left` was computed
  uint32_t version = 0;  // events of earlier versions are void
  double begin = 0;      // of the task
  double late = 0;       // how long after the task's end its results are there
  bool at_barrier = false;
};

struct Event {
  double time;
  uint32_t run;
  uint32_t version;
  bool operator>(const Event& other) const { return time != other.time ? time > other.time : run > other.run; }
};

// When the workers of a program were busy.
struct Busy {
  double total = 0, first = never, last = 0;
  uint32_t working = 0;  // workers
  double since = 0;
};

class Simulation {
 public:
  Simulation(const Plan& plan, const Machine& machine, const Options& options, uint32_t batches)
      : plan_(plan),
        options_(options),
        batches_(batches),
        workers_(std::clamp(options.workers, 1u, batches)),
        programs_(plan, machine, options, batches),
        busy_(programs_.all.size()),
        active_(programs_.capacities.size()),
        left_(programs_.capacities),
        sharing_(programs_.capacities.size()) {
    for (uint32_t program = 0; program < programs_.all.size(); ++program)
      for (uint32_t worker = 0; worker < workers_; ++worker) runs_.push_back({program, worker, worker});
    for (uint32_t worker = 0; worker < workers_; ++worker) states_.emplace_back(plan, programs_);
  }

  // Whether all programs ended.
  bool run(Prediction* prediction) {
    for (uint32_t i = 0; i < runs_.size(); ++i) schedule(0, i);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      Run& run = runs_[event.run];
      if (event.version != run.version) continue;
      now_ = event.time;
      switch (run.phase) {
        case Phase::starting: start(event.run); break;
        case Phase::transferring: end_transfer(event.run); break;
        case Phase::ending: complete(event.run); break;
        case Phase::done: break;
      }
    }
    prediction->microseconds = end_;
    prediction->batches = batches_;
    prediction->sent_bytes = programs_.sent_bytes;
    prediction->timeline = std::move(timeline_);
    for (size_t i = 0; i < busy_.size(); ++i) {
      const Program& program = programs_.all[i];
      prediction->groups.push_back({program.rank, program.group, busy_[i].total, busy_[i].first, busy_[i].last});
    }
    return std::ranges::all_of(runs_, [](const Run& run) { return run.phase == Phase::done; });
  }

 private:
  // What the workers of one number share, who communicate with each other only.
  struct State {
    State(const Plan& plan, const Programs& programs)
        : messages(plan.channels.size()), credits(plan.channels.size()), in_flight(plan.channels.size()) {
      for (size_t i = 0; i < plan.channels.size(); ++i)
        if (plan.channels[i].kind != ChannelKind::ring) messages[i].arrivals.assign(plan.channels[i].initial, 0);
      for (const Program& program : programs.all) completed.emplace_back(program.tasks.back().number + 1);
      for (const Rank& rank : plan.ranks) barriers.emplace_back(rank.barriers.size());
    }

    std::vector<Awaited> messages;                             // by channel: messages, or signals
    std::vector<Awaited> credits;                              // by channel; without arrivals
    std::vector<uint32_t> in_flight;                           // by channel
    std::vector<std::vector<Awaited>> completed;               // by program and step: one arrival per micro-batch
    std::vector<std::vector<std::vector<uint32_t>>> barriers;  // by rank and barrier: the runs that reached it
    std::unordered_map<PacketCell, Awaited> packets;           // one arrival per micro-batch
  };

  // A run among those that share a resource.
  struct Member {
    uint32_t turn;  // how many runs of the program have earlier micro-batches
    uint32_t program, batch, index;
  };

  const Program& program(const Run& run) const { return programs_.all[run.program]; }
  const Task& task(const Run& run) const { return program(run).tasks[run.task]; }
  State& state(const Run& run) { return states_[run.worker]; }

  void schedule(double time, uint32_t index) { events_.push({time, index, runs_[index].version}); }

  void wake(Awaited& awaited, double time) {
    for (uint32_t index : awaited.waiting) {
      // It can have been woken by something else, and be at work.
      if (runs_[index].phase != Phase::starting) continue;
      ++runs_[index].version;
      schedule(std::max(time, now_), index);
    }
    awaited.waiting.clear();
  }

  // When an arrival is there. Registers the run if it is not on its way yet.
  static double arrival(Awaited& awaited, uint32_t index, size_t number = 0) {
    if (number < awaited.arrivals.size()) return awaited.arrivals[number];
    awaited.waiting.push_back(index);
    return never;
  }

  // When the current task of a run can start; `never` if something has yet to happen.
  double ready(uint32_t index) {
    const Run& run = runs_[index];
    const Task& current = task(run);
    const Step& step = *current.step;
    State& own = state(run);
    const size_t batch = run.batch / workers_;  // of this worker
    double time = now_;
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
      const uint32_t awaited = programs_.program_of()[program(run).rank][id.group];
      time = std::max(time, arrival(own.completed[awaited][id.step], index, batch));
    }
    for (PacketCell cell : current.reads_packets) time = std::max(time, arrival(own.packets[cell], index, batch));
    return time;
  }

  void start(uint32_t index) {
    Run& run = runs_[index];
    const double time = ready(index);
    if (time == never) return;  // woken later
    if (time > now_) {
      ++run.version;
      return schedule(time, index);
    }
    const Step& step = *task(run).step;
    if (step.kind == StepKind::barrier && !run.at_barrier) return reach_barrier(index);
    State& own = state(run);
    for (const Operand& operand : step.from)
      if (operand.place == Place::message) own.messages[operand.channel].arrivals.pop_front();
    if (step.kind == StepKind::wait)
      for (uint32_t channel : step.channels) own.messages[channel].arrivals.pop_front();
    for (const Operand& operand : step.to)
      if (operand.place == Place::message) ++own.in_flight[operand.channel];
    begin_transfer(index);
  }

  void reach_barrier(uint32_t index) {
    const Run& run = runs_[index];
    const uint32_t rank = program(run).rank, barrier = task(run).step->barrier;
    std::vector<uint32_t>& reached = state(run).barriers[rank][barrier];
    reached.push_back(index);
    if (reached.size() < plan_.ranks[rank].barriers[barrier].size()) return;
    for (uint32_t member : std::exchange(reached, {})) {
      runs_[member].at_barrier = true;
      ++runs_[member].version;
      schedule(now_, member);
    }
  }

  void begin_transfer(uint32_t index) {
    Run& run = runs_[index];
    run.phase = Phase::transferring;
    run.begin = run.updated = now_;
    run.left = 1;
    run.at_barrier = false;
    const Task& current = task(run);
    if (current.loads.empty()) return end_transfer(index);
    Busy& busy = busy_[run.program];
    if (busy.working++ == 0) busy.since = now_;
    busy.first = std::min(busy.first, now_);
    for (const Load& load : current.loads) active_[load.resource].push_back(index);
    share(current);
  }

  void end_transfer(uint32_t index) {
    Run& run = runs_[index];
    const Task& current = task(run);
    run.phase = Phase::ending;
    ++run.version;
    // A worker is many warps. While the blocks of one micro-batch have their latency, others begin the next one, but
    // what a micro-batch passes on is late all the same.
    run.late = run.batch < workers_ ? 0 : current.fixed_us;
    schedule(now_ + current.fixed_us - run.late, index);
    if (current.loads.empty()) return;
    Busy& busy = busy_[run.program];
    if (--busy.working == 0) busy.total += now_ - busy.since;
    busy.last = now_;
    for (const Load& load : current.loads) {
      left_[load.resource] += run.rate * load.amount;
      std::erase(active_[load.resource], index);
    }
    run.rate = 0;
    share(current);
  }

  // Divides the resources of `task` among the runs that use them: first among the earliest micro-batches of all
  // programs, then what they leave among the next ones.
  void share(const Task& task) {
    members_.clear();
    for (const Load& load : task.loads)
      for (uint32_t index : active_[load.resource])
        members_.push_back({0, runs_[index].program, runs_[index].batch, index});
    std::ranges::sort(members_, {}, [](const Member& one) { return std::tuple(one.program, one.batch, one.index); });
    members_.erase(std::ranges::unique(members_, {}, &Member::index).begin(), members_.end());
    for (size_t i = 0; i < members_.size(); ++i) {
      if (i != 0 && members_[i - 1].program == members_[i].program) members_[i].turn = members_[i - 1].turn + 1;
      stop(members_[i].index);
    }
    std::ranges::sort(members_, {}, [](const Member& one) { return std::tuple(one.turn, one.index); });
    for (auto first = members_.begin(); first != members_.end();) {
      const auto last = std::find_if(first, members_.end(), [&](const Member& one) { return one.turn != first->turn; });
      share_equally(std::span(first, last));
      first = last;
    }
  }

  // Takes back what a run has of its resources.
  void stop(uint32_t index) {
    Run& run = runs_[index];
    for (const Load& load : this->task(run).loads) left_[load.resource] += run.rate * load.amount;
    run.left = std::max(0.0, run.left - run.rate * (now_ - run.updated));
    run.updated = now_;
    run.rate = 0;
    ++run.version;
  }

  // Gives runs equal shares of what is left.
  void share_equally(std::span<const Member> members) {
    for (const Member& one : members)
      for (const Load& load : task(runs_[one.index]).loads) ++sharing_[load.resource];
    for (const auto& [turn, number, batch, index] : members) {
      Run& run = runs_[index];
      const Task& current = task(run);
      double rate = never;
      for (const Load& load : current.loads) {
        const double free = left_[load.resource];
        const bool none_left = free <= 1e-9 * programs_.capacities[load.resource];
        if (load.amount > 0) rate = std::min(rate, none_left ? 0 : free / sharing_[load.resource] / load.amount);
        --sharing_[load.resource];
      }
      if (rate == never) {
        schedule(now_, index);
        continue;
      }
      run.rate = rate;
      for (const Load& load : current.loads) left_[load.resource] -= rate * load.amount;
      if (rate > 0) schedule(now_ + run.left / rate, index);
    }
  }

  void complete(uint32_t index) {
    Run& run = runs_[index];
    const Task& current = task(run);
    const Step& step = *current.step;
    State& own = state(run);
    const double done = now_ + run.late;
    end_ = std::max(end_, done);
    if (options_.records_timeline)
      timeline_.push_back({program(run).rank, program(run).group, current.number, run.batch, run.begin, done});
    double flight = 0;
    for (const Operand& operand : step.to) {
      if (!operand.has_channel()) continue;
      const double latency = programs_.latencies[operand.channel];
      flight = std::max(flight, latency);
      if (operand.place == Place::message) deliver(own.messages[operand.channel], done + latency);
    }
    for (const Operand& operand : step.from) {
      if (operand.place != Place::message) continue;
      --own.in_flight[operand.channel];
      wake(own.credits[operand.channel], now_);
    }
    for (PacketCell cell : current.writes_packets) deliver(own.packets[cell], done + flight);
    if (step.kind == StepKind::signal)
      for (uint32_t channel : step.channels) deliver(own.messages[channel], done + programs_.latencies[channel]);
    if (current.is_last_part) deliver(own.completed[run.program][current.number], done);
    next_task(index);
  }

  void deliver(Awaited& awaited, double time) {
    awaited.arrivals.push_back(time);
    wake(awaited, time);
  }

  void next_task(uint32_t index) {
    Run& run = runs_[index];
    ++run.version;
    run.phase = Phase::starting;
    if (++run.task == program(run).tasks.size()) {
      run.task = 0;
      run.batch += workers_;
      if (run.batch >= batches_) {
        run.phase = Phase::done;
        return;
      }
    }
    schedule(now_, index);
  }

  const Plan& plan_;
  const Options& options_;
  const uint32_t batches_, workers_;
  Programs programs_;
  std::vector<Run> runs_;
  std::vector<Busy> busy_;                     // by program
  std::vector<State> states_;                  // by worker
  std::vector<std::vector<uint32_t>> active_;  // by resource, the runs that use it
  std::vector<double> left_;                   // by resource, of its capacity
  std::vector<uint32_t> sharing_;              // by resource; scratch of share_equally()
  std::vector<Member> members_;                // scratch of share()
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Interval> timeline_;
  double now_ = 0, end_ = 0;
};

}  // namespace

ncast_status simulate(const Plan& plan, const Machine& machine, const Options& options, Prediction* prediction) {
  if (plan.rank_count() > machine.gpus())
    return fail(NCAST_INVALID_ARGUMENT, "plan: %d ranks, but the machine has %d GPUs", plan.rank_count(),
                machine.gpus());
  *prediction = {};
  if (plan.chunks == 0) return fail(NCAST_INVALID_ARGUMENT, "plan: chunks is 0");
  const uint32_t batches = batches_of(plan, machine, options);
  if (!Simulation(plan, machine, options, batches).run(prediction))
    return fail(NCAST_INVALID_ARGUMENT, "plan: it does not complete; verify it");
  prediction->microseconds += machine.launch_us;
  return NCAST_OK;
}

}  // namespace narrowcast::plan::simulate
