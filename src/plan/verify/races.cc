#include "plan/verify/races.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "plan/steps.h"
#include "plan/verify/accesses.h"
#include "plan/verify/actors.h"
#include "plan/verify/clocks.h"

namespace narrowcast::plan::verify {

namespace {

// What an actor knows: of each actor the epoch up to which its accesses precede, and up to which its reads do. These
// differ only if there are packets or relaxed signals: who receives them knows that the other side's earlier reads have
// completed, but not that its writes are visible.
struct Clock {
  Row accesses, reads;
};

// A clock, and the epochs of the actor that passes it on.
struct Stamp {
  Clock clock;
  uint32_t component = none;
  uint32_t epoch = 0, read_epoch = 0;
};

// A message, or packets in scratch.
struct Passed {
  Stamp stamp;
  uint32_t flat = none;   // the step that sent or wrote it
  uint32_t position = 0;  // the first cell, in scratch
};

template <typename T>
class Queue {
 public:
  bool is_empty() const { return head_ == items_.size(); }
  size_t size() const { return items_.size() - head_; }
  const T& operator[](size_t index) const { return items_[head_ + index]; }
  void push(T item) { items_.push_back(std::move(item)); }
  void drop(size_t count) {
    for (size_t i = 0; i < count; ++i) items_[head_ + i] = {};
    head_ += count;
    if (head_ == items_.size()) {
      items_.clear();
      head_ = 0;
    }
  }

 private:
  std::vector<T> items_;
  size_t head_ = 0;
};

struct Signal {
  Stamp stamp;
  Clock entry;  // what a relaxed signal says: the rank has entered the call
  uint32_t group = none;
  uint32_t component = none, completion = 0;  // the epoch of the signal itself
  uint32_t index = none;                      // in SharedSemaphores
  bool relaxed = false;
};

struct GroupState {
  Clock seen;  // by all threads
  // If threads are independent, what some of them have seen since the last sync.
  Clock pending;
  // Of packets of so many cells that threads received since then: the writers' entry of the call. All threads that move
  // a part of so many cells know it.
  std::vector<std::pair<uint32_t, Clock>> polled;
  uint32_t synced = 0;  // accesses up to this epoch have been made by all threads
  uint32_t base = 0;    // epochs of this call begin after it
  uint32_t next = 0;    // flat step
};

struct EngineState {
  Clock seen;
  uint32_t issued = 0;          // the group's epoch when it started the last one
  std::vector<uint32_t> steps;  // flat steps that it has executed: the i-th has the epochs 2 i + 1 and 2 i + 2
};

struct Semaphore {
  Queue<Signal> signals;  // of one group: those not yet awaited. Of several: all
  uint64_t dropped = 0;   // signals that are no longer in the queue
  uint32_t waits = 0;     // in this call
};

struct PlanState {
  std::vector<GroupState> groups;
  std::vector<Queue<Passed>> rings;
  std::vector<Semaphore> semaphores;
  std::vector<uint32_t> dependents;  // of each flat step: how many flat steps come after it
  std::vector<Accesses> memory;      // of each map
  size_t scratch_stride = 0;         // from one copy of the scratch to the next
  uint32_t calls = 0;                // so far
};

struct Viewer {
  uint32_t actor;
  uint32_t epoch;  // of the access
  const Clock* clock;
  uint32_t synced;
};

class RaceSearch {
 public:
  RaceSearch(std::span<const Scheduled> plans, std::vector<const Program*> programs)
      : plans_(plans),
        programs_(std::move(programs)),
        maps_(maps_of(programs_)),
        actors_(programs_, maps_),
        rows_(actors_.components()),
        tracks_reads_(orders_reads(programs_)),
        engines_(actors_.count()),
        ranks_(static_cast<size_t>(programs_[0]->plan->rank_count())),
        scratch_log_(ranks_.size()) {
    for (uint32_t plan = 0; plan < programs_.size(); ++plan) states_.push_back(initial_state(plan));
  }

  Finding run(std::span<const uint32_t> calls) {
    for (call_ = 0; call_ < calls.size(); ++call_) {
      plan_ = calls[call_];
      program_ = programs_[plan_];
      state_ = &states_[plan_];
      begin_call();
      for (const uint32_t flat : plans_[plan_].order) {
        execute(flat);
        if (finding_.found()) return std::move(finding_);
      }
      end_call();
      if (finding_.found()) return std::move(finding_);
      ++state_->calls;
    }
    return {};
  }

 private:
  struct RankState {
    Clock entry;  // of the current call
    Clock end;    // of the previous call
  };
  // The last accesses of an actor to the scratch of a rank.
  struct Logged {
    Access read, write;
  };

  static std::vector<std::vector<MemoryMap>> maps_of(const std::vector<const Program*>& programs) {
    std::vector<std::vector<MemoryMap>> maps;
    maps.reserve(programs.size());
    for (const Program* program : programs) maps.push_back(memory_maps(*program->plan, program->parts));
    return maps;
  }
  static bool orders_reads(const std::vector<const Program*>& programs) {
    return std::any_of(programs.begin(), programs.end(),
                       [](const Program* program) { return program->has_packets || program->has_relaxed; });
  }

  PlanState initial_state(uint32_t plan) const {
    const Program& program = *programs_[plan];
    PlanState state;
    state.groups.resize(program.groups.size());
    state.rings.resize(program.channels.size());
    state.semaphores.resize(program.channels.size());
    state.dependents.assign(program.steps.size(), 0);
    for (const FlatStep& step : program.steps)
      for (const StepId& id : step.step->after) ++state.dependents[program.end_of(program.rank_of(step), id) - 1];
    for (const MemoryMap& map : maps_[plan])
      state.memory.emplace_back(map.cells() * size_t{program.plan->scratch_copies});
    state.scratch_stride = maps_[plan][0].cells();
    return state;
  }

  bool independent() const { return program_->plan->threads == Threads::independent; }

  // --- clocks

  void join(Clock& into, const Clock& other) {
    into.accesses.join(rows_, other.accesses);
    if (tracks_reads_) into.reads.join(rows_, other.reads);
  }
  void join(Clock& into, const Stamp& stamp) {
    // Who knows an epoch of a group knows what the group knew then.
    if (stamp.component != none && !independent() && !tracks_reads_ && into.accesses[stamp.component] >= stamp.epoch)
      return;
    join(into, stamp.clock);
    if (stamp.component == none) return;
    into.accesses.raise(rows_, stamp.component, stamp.epoch);
    if (tracks_reads_) into.reads.raise(rows_, stamp.component, stamp.read_epoch);
  }
  void raise(Clock& clock, uint32_t actor, uint32_t epoch) {
    const uint32_t component = actors_[actor].component;
    if (component == none) return;
    clock.accesses.raise(rows_, component, epoch);
    if (tracks_reads_) clock.reads.raise(rows_, component, epoch);
  }

  void join_reads(Clock& into, const Stamp& stamp) {
    into.reads.join(rows_, stamp.clock.reads);
    if (stamp.component != none) into.reads.raise(rows_, stamp.component, stamp.read_epoch);
  }

  uint32_t actor_of(uint32_t group) const { return actors_.group(plan_, group); }
  uint32_t epoch_before(uint32_t group) const {
    const GroupState& state = state_->groups[group];
    return state.base + 2 * (state.next - program_->groups[group].begin);
  }
  Clock all_seen(const GroupState& group) {
    Clock clock = group.seen;
    if (independent()) join(clock, group.pending);
    return clock;
  }
  // Where acquired clocks go.
  Clock& acquired(GroupState& group) { return independent() ? group.pending : group.seen; }

  // What a group passes on while it executes a step: all earlier steps, and the reads of this one.
  Stamp release(uint32_t group) {
    const GroupState& state = state_->groups[group];
    const uint32_t epoch = epoch_before(group) + 1;
    return {state.seen, actors_[actor_of(group)].component, independent() ? state.synced : epoch,
            independent() ? state.synced : epoch};
  }
  // What packets pass on: the reads so far.
  Stamp reads_so_far(uint32_t group) {
    return {all_seen(state_->groups[group]), actors_[actor_of(group)].component, 0, epoch_before(group) + 1};
  }
  Stamp completion(uint32_t group) {
    const uint32_t epoch = epoch_before(group) + 2;
    return {all_seen(state_->groups[group]), actors_[actor_of(group)].component, epoch, epoch};
  }
  Stamp engine_stamp(uint32_t engine) {
    const auto epoch = static_cast<uint32_t>(2 * engines_[engine].steps.size());
    return {engines_[engine].seen, actors_[engine].component, epoch, epoch};
  }

  // --- calls

  void begin_call() {
    for (int rank = 0; rank < program_->plan->rank_count(); ++rank) {
      RankState& state = ranks_[static_cast<size_t>(rank)];
      state.entry = state.end;
      raise(state.entry, actors_.user(rank), call_ + 1);
      if (actors_.is_visited(rank)) let_user_write(rank);
    }
    for (uint32_t group = 0; group < program_->groups.size(); ++group) {
      const FlatGroup& flat = program_->groups[group];
      GroupState& state = state_->groups[group];
      state.seen = ranks_[static_cast<size_t>(flat.rank)].entry;
      forget_pending(state);
      state.base = state_->calls * epochs_of_call(flat);
      state.synced = state.base;
      state.next = flat.begin;
    }
    for (Semaphore& semaphore : state_->semaphores) semaphore.waits = 0;
  }

  static uint32_t epochs_of_call(const FlatGroup& group) { return 2 * (group.end - group.begin) + 2; }

  template <typename Visit>
  void each_user_cell(int rank, Visit visit) {
    for (size_t map = 0; map < maps_[plan_].size(); ++map)
      for (const Buffer buffer : {Buffer::input, Buffer::output}) {
        const uint32_t first = maps_[plan_][map].base(rank, buffer);
        const uint32_t cells = program_->parts * program_->plan->buffer_chunks(rank, buffer);
        for (uint32_t cell = first; cell < first + cells; ++cell)
          visit(state_->memory[map], state_->memory[map][cell], buffer, (cell - first) / program_->parts);
      }
  }

  void let_user_write(int rank) {
    each_user_cell(rank, [&](Accesses& memory, Accesses::Cell& cell, Buffer, uint32_t) {
      memory.filter_readers(cell, [](const Access&) { return true; });
      cell.write = {actors_.user(rank), call_ + 1, {}};
    });
  }

  void end_call() {
    for (int rank = 0; rank < program_->plan->rank_count(); ++rank) {
      RankState& state = ranks_[static_cast<size_t>(rank)];
      Clock end = state.entry;
      const size_t index = static_cast<size_t>(rank);
      for (uint32_t group = program_->rank_groups[index]; group < program_->rank_groups[index + 1]; ++group) {
        join(end, all_seen(state_->groups[group]));
        raise(end, actor_of(group), state_->groups[group].base + epochs_of_call(program_->groups[group]) - 1);
      }
      state.end = std::move(end);
      if (actors_.is_visited(rank)) check_user(rank);
      if (finding_.found()) return;
    }
    packets_.clear();
    received_.clear();
    completions_.clear();
  }

  void check_user(int rank) {
    const Viewer user{actors_.user(rank), call_ + 2, &ranks_[static_cast<size_t>(rank)].end, 0};
    each_user_cell(rank, [&](Accesses& memory, Accesses::Cell& cell, Buffer buffer, uint32_t chunk) {
      if (finding_.found()) return;
      const Access* unordered = nullptr;
      bool is_write = false;
      if (cell.write.actor != none && !is_ordered(cell.write, false, user)) {
        unordered = &cell.write;
        is_write = true;
      } else {
        unordered = memory.find_reader(cell, [&](const Access& access) { return !is_ordered(access, true, user); });
      }
      if (unordered != nullptr) report_user_race(rank, buffer, chunk, *unordered, is_write);
    });
  }

  // --- steps

  void execute(uint32_t flat) {
    const FlatStep& step = program_->steps[flat];
    GroupState& group = state_->groups[step.group];
    if (step.step->kind == StepKind::barrier) return pass_barrier(step);
    acquire_dependences(flat);
    switch (step.step->kind) {
      case StepKind::loop:
      case StepKind::sync: sync(step.group); break;
      case StepKind::signal: signal(flat, step); break;
      case StepKind::wait: wait(flat, step); break;
      case StepKind::flush:
        for (const uint32_t channel : step.step->channels)
          if (const uint32_t engine = actors_.engine(plan_, step.group, channel); engine != none)
            join(acquired(group), engine_stamp(engine));
        break;
      default: move(flat, step);
    }
    finish(flat);
  }

  void acquire_dependences(uint32_t flat) {
    const FlatStep& step = program_->steps[flat];
    for (const StepId& id : step.step->after) {
      const auto found = completions_.find(program_->end_of(program_->rank_of(step), id) - 1);
      join(state_->groups[step.group].seen, found->second.first);
      if (--found->second.second == 0) completions_.erase(found);
    }
  }

  void finish(uint32_t flat) {
    const uint32_t group = program_->steps[flat].group;
    if (const uint32_t dependents = state_->dependents[flat]; dependents != 0)
      completions_.emplace(flat, std::pair(completion(group), dependents));
    ++state_->groups[group].next;
  }

  void sync(uint32_t index) {
    GroupState& group = state_->groups[index];
    if (!independent()) return;
    join(group.seen, group.pending);
    forget_pending(group);
    group.synced = epoch_before(index);
  }

  static void forget_pending(GroupState& group) {
    group.pending = {};
    group.polled.clear();
  }

  void pass_barrier(const FlatStep& step) {
    const uint32_t barrier = program_->rank_barriers[static_cast<size_t>(program_->rank_of(step))] + step.step->barrier;
    const std::vector<uint32_t>& members = program_->barriers[barrier];
    Clock clock;
    for (const uint32_t member : members) {
      acquire_dependences(state_->groups[member].next);
      join(clock, all_seen(state_->groups[member]));
    }
    for (const uint32_t member : members) raise(clock, actor_of(member), epoch_before(member));
    for (const uint32_t member : members) {
      sync(member);
      state_->groups[member].seen = clock;
    }
    for (const uint32_t member : members) finish(state_->groups[member].next);
  }

  void signal(uint32_t flat, const FlatStep& step) {
    const Clock& entry = ranks_[static_cast<size_t>(program_->rank_of(step))].entry;
    for (size_t position = 0; position < step.step->channels.size(); ++position) {
      const uint32_t channel = step.step->channels[position];
      Signal signal{release(step.group),
                    entry,
                    step.group,
                    actors_[actor_of(step.group)].component,
                    epoch_before(step.group) + 2,
                    plans_[plan_].shared->signal_index(flat, position),
                    step.step->relaxed};
      if (const uint32_t engine = actors_.engine(plan_, step.group, channel); engine != none) {
        Stamp& stamp = signal.stamp;
        join(stamp.clock, Stamp(stamp));
        join(stamp.clock, engine_stamp(engine));
        stamp.component = none;
      }
      state_->semaphores[channel].signals.push(std::move(signal));
    }
  }

  void wait(uint32_t flat, const FlatStep& step) {
    for (size_t position = 0; position < step.step->channels.size(); ++position) {
      const uint32_t channel = step.step->channels[position];
      const SignalsNeeded* shared = plans_[plan_].shared->needed(flat, position);
      const uint32_t waits = shared != nullptr ? shared->least : ++state_->semaphores[channel].waits;
      // The number of signals that must have been sent.
      const int64_t needed = int64_t{state_->calls} * program_->channels[channel].signals + waits -
                             program_->plan->channels[channel].initial;
      if (needed > 0) acquire_signals(step, channel, static_cast<uint64_t>(needed));
    }
  }

  // Acquires the signals that have been sent whenever `needed` have been sent in all.
  void acquire_signals(const FlatStep& step, uint32_t channel, uint64_t needed) {
    const FlatChannel& flat = program_->channels[channel];
    Semaphore& semaphore = state_->semaphores[channel];
    Clock& clock = acquired(state_->groups[step.group]);
    const auto acquire = [&](const Signal& signal) {
      if (!signal.relaxed && !step.step->relaxed) return join(clock, signal.stamp);
      join(clock, signal.entry);
      join_reads(clock, signal.stamp);
    };
    if (flat.signallers.size() == 1) {
      const size_t count = needed - semaphore.dropped;
      for (size_t i = 0; i < count; ++i) acquire(semaphore.signals[i]);
      if (flat.waiters.size() > 1) return;
      semaphore.signals.drop(count);
      semaphore.dropped = needed;
      return;
    }
    // Calls of the signalling rank are ordered. In the last of them, a signal is certain if too few others can precede.
    const size_t first = (needed - 1) / flat.signals * flat.signals;
    for (size_t i = 0; i < first; ++i) acquire(semaphore.signals[i]);
    const size_t last = std::min<size_t>(semaphore.signals.size(), first + flat.signals);
    for (size_t i = first; i < last; ++i)
      if (possibly_before(channel, i, first, last) < needed - first) acquire(semaphore.signals[i]);
  }

  // How many of the signals of a call can be sent before the i-th of the queue. [first, last): those of this call that
  // have been sent so far.
  uint64_t possibly_before(uint32_t channel, size_t i, size_t first, size_t last) const {
    const Queue<Signal>& signals = state_->semaphores[channel].signals;
    const SharedSemaphores& shared = *plans_[plan_].shared;
    uint64_t possible = 0;
    for (uint32_t other = 0; other < program_->channels[channel].signals; ++other)
      possible += other != signals[i].index && !shared.follows(channel, other, signals[i].index) ? 1 : 0;
    // The order that goes through other ranks.
    for (size_t j = first; j < last; ++j)
      if (j != i && !shared.follows(channel, signals[j].index, signals[i].index) &&
          signals[j].stamp.clock.accesses[signals[i].component] >= signals[i].completion)
        --possible;
    return possible;
  }

  void move(uint32_t flat, const FlatStep& step) {
    GroupState& group = state_->groups[step.group];
    for (const Operand& from : step.step->from) {
      if (from.place == Place::message) receive(from.channel, flat);
      if (from.packets) receive_packets(step, from);
    }
    start_engines(flat, step);
    Clock polled;
    const Clock* clock = &group.seen;
    for (const auto& [cells, entries] : group.polled) {
      if (cells < step.cells) continue;
      if (clock != &polled) polled = group.seen;
      clock = &polled;
      join(polled, entries);
    }
    each_access(actors_, plan_, step, [&](uint32_t actor, const Operand& operand, bool is_write) {
      if (!finding_.found()) access(flat, step, actor, *clock, operand, is_write);
    });
    for (const Operand& to : step.step->to)
      if (to.place == Place::message) {
        const bool packets = program_->plan->channels[to.channel].packets;
        Passed passed{packets ? reads_so_far(step.group) : release(step.group), flat, 0};
        state_->rings[to.channel].push(std::move(passed));
      }
  }

  void receive(uint32_t channel, uint32_t flat) {
    const FlatStep& step = program_->steps[flat];
    Queue<Passed>& ring = state_->rings[channel];
    if (program_->plan->channels[channel].packets) {
      receive_packets(ring[0], step);
      if (independent()) received_[flat].push_back(ring[0].flat);
    } else {
      join(acquired(state_->groups[step.group]), ring[0].stamp);
    }
    ring.drop(1);
  }
  // Packets say that their writer has entered the call, and how far its reads are.
  void receive_packets(const Passed& packets, const FlatStep& step) {
    GroupState& group = state_->groups[step.group];
    const Clock& entry = ranks_[static_cast<size_t>(program_->rank_of(program_->steps[packets.flat]))].entry;
    Clock& clock = acquired(group);
    join(clock, entry);
    join_reads(clock, packets.stamp);
    if (!independent()) return;
    auto same = std::find_if(group.polled.begin(), group.polled.end(),
                             [&](const auto& one) { return one.first == step.cells; });
    if (same == group.polled.end()) same = group.polled.insert(same, {step.cells, {}});
    join(same->second, entry);
  }

  void receive_packets(const FlatStep& step, const Operand& operand) {
    uint32_t last = none;
    each_range(*program_, maps_[plan_][0], step, operand, [&](int, uint32_t first) {
      for (uint32_t cell = first; cell < first + step.cells; ++cell) {
        const uint32_t index = state_->memory[0][cell + scratch_offset()].packet_stamp;
        if (std::exchange(last, index) != index) receive_packets(packets_[index], step);
      }
    });
  }

  // Whether cell `offset` of what the step stores was computed from what `read` read there. Follows packets back to the
  // steps that wrote them; they are still in scratch, because a place receives packets once in a call.
  bool derives_from(uint32_t flat, uint32_t offset, const Access& read, uint32_t cell) {
    const auto [reader, call] = step_of(read);
    if (call != state_->calls || actors_[read.actor].plan != plan_) return false;
    std::vector<std::pair<uint32_t, uint32_t>> pending = {{flat, offset}};
    std::set<std::pair<uint32_t, uint32_t>> seen(pending.begin(), pending.end());
    const auto visit = [&](uint32_t next, uint32_t next_offset) {
      if (seen.emplace(next, next_offset).second) pending.emplace_back(next, next_offset);
    };
    while (!pending.empty()) {
      std::tie(flat, offset) = pending.back();
      pending.pop_back();
      if (flat == reader && read.shape.first + offset == cell) return true;
      const FlatStep& step = program_->steps[flat];
      for (const Operand& from : step.step->from) {
        if (!from.packets) continue;
        each_range(*program_, maps_[plan_][0], step, from, [&](int, uint32_t first) {
          const uint32_t index = state_->memory[0][first + offset + scratch_offset()].packet_stamp;
          visit(packets_[index].flat, position_of(step, from) + offset - packets_[index].position);
        });
      }
      if (const auto found = received_.find(flat); found != received_.end())
        for (const uint32_t sender : found->second) visit(sender, offset);
    }
    return false;
  }

  uint32_t position_of(const FlatStep& step, const Operand& operand) const {
    return operand.chunk * program_->parts + step.first;
  }

  size_t scratch_offset() const { return state_->calls % program_->plan->scratch_copies * state_->scratch_stride; }

  // The engines of the step's ports have what the group passes on, and execute their part of the step.
  void start_engines(uint32_t flat, const FlatStep& step) {
    for (const auto* operands : {&step.step->from, &step.step->to})
      for (const Operand& operand : *operands) {
        if (operand.place != Place::remote) continue;
        const uint32_t engine = actors_.engine(plan_, step.group, operand.channel);
        if (engine == none) continue;
        EngineState& state = engines_[engine];
        const uint32_t issued = epoch_before(step.group) + 1;
        if (std::exchange(state.issued, issued) == issued) continue;  // the step names the port twice
        join(state.seen, release(step.group));
        state.steps.push_back(flat);
      }
  }

  void access(uint32_t flat, const FlatStep& step, uint32_t actor, const Clock& clock, const Operand& operand,
              bool is_write) {
    const GroupState& group = state_->groups[step.group];
    const bool is_engine = actors_[actor].kind == Actors::Kind::engine;
    uint32_t epoch = epoch_before(step.group);
    if (is_engine) epoch = static_cast<uint32_t>(2 * (engines_[actor].steps.size() - 1));
    const Viewer viewer{actor, epoch + (is_write ? 2 : 1), is_engine ? &engines_[actor].seen : &clock, group.synced};
    uint32_t stamp = none;
    if (is_write && operand.packets) {
      stamp = static_cast<uint32_t>(packets_.size());
      packets_.push_back(
          {is_engine ? engine_stamp(actor) : reads_so_far(step.group), flat, position_of(step, operand)});
    }
    const bool is_scratch = operand.buffer == Buffer::scratch;
    const size_t offset = is_scratch ? scratch_offset() : 0;
    // Scratch is the same memory in place and out of place.
    const size_t map_count = is_scratch ? 1 : maps_[plan_].size();
    for (size_t map = 0; map < map_count; ++map)
      each_range(*program_, maps_[plan_][map], step, operand, [&](int rank, uint32_t first) {
        const Access access{viewer.actor, viewer.epoch, {first, step.cells, operand.packets}};
        Accesses& memory = state_->memory[map];
        for (uint32_t cell = first; cell < first + step.cells && !finding_.found(); ++cell) {
          if (is_write)
            write(memory, cell, memory[cell + offset], access, viewer, stamp, flat, operand);
          else
            read(memory, memory[cell + offset], access, viewer, flat, operand);
        }
        if (is_scratch && programs_.size() > 1) log_scratch(rank, access, viewer, is_write, flat, operand);
      });
  }

  void read(Accesses& memory, Accesses::Cell& cell, const Access& access, const Viewer& viewer, uint32_t flat,
            const Operand& operand) {
    const bool has_arrived = operand.packets && cell.packet_call == call_;
    if (!has_arrived && cell.write.actor != none && !is_ordered(cell.write, false, viewer, access.shape))
      return report_race(flat, operand, false, cell.write, true, viewer);
    memory.filter_readers(cell, [&](const Access& earlier) {
      return (earlier.actor == access.actor && earlier.shape == access.shape) || is_ordered(earlier, true, viewer);
    });
    memory.add_reader(cell, access);
  }

  void write(Accesses& memory, uint32_t index, Accesses::Cell& cell, const Access& access, const Viewer& viewer,
             uint32_t stamp, uint32_t flat, const Operand& operand) {
    const bool overwrites_packets = operand.packets && cell.packet_stamp != none;
    if (overwrites_packets && cell.packet_call == call_) return report_second_packets(flat, operand, cell.write);
    const Access* reader = memory.find_reader(cell, [&](const Access& earlier) {
      if (is_ordered(earlier, true, viewer, access.shape)) return false;
      return !program_->has_packets || !derives_from(flat, index - access.shape.first, earlier, index);
    });
    if (reader != nullptr) return report_race(flat, operand, true, *reader, false, viewer);
    // A reader that precedes came after the last write.
    if (cell.readers == none && cell.write.actor != none && !is_ordered(cell.write, false, viewer, access.shape))
      return report_race(flat, operand, true, cell.write, true, viewer);
    memory.filter_readers(cell, [](const Access&) { return true; });
    cell.write = access;
    cell.packet_stamp = stamp;
    cell.packet_call = stamp != none ? call_ : none;
  }

  // Other plans divide the scratch differently: each access conflicts with all of theirs.
  void log_scratch(int rank, const Access& access, const Viewer& viewer, bool is_write, uint32_t flat,
                   const Operand& operand) {
    std::unordered_map<uint32_t, Logged>& log = scratch_log_[static_cast<size_t>(rank)];
    if (is_write)
      for (const auto& [actor, logged] : log) {
        if (actors_[actor].plan == plan_) continue;
        if (logged.read.actor != none && !is_ordered(logged.read, true, viewer))
          return report_race(flat, operand, true, logged.read, false, viewer);
        if (logged.write.actor != none && !is_ordered(logged.write, false, viewer))
          return report_race(flat, operand, true, logged.write, true, viewer);
      }
    Logged& logged = log[access.actor];
    (is_write ? logged.write : logged.read) = access;
  }

  // --- order

  // Whether an earlier access precedes what the viewer does now. shape: of the access that it makes, if any.
  bool is_ordered(const Access& earlier, bool is_read, const Viewer& viewer, const Shape& shape = {}) const {
    const Actors::Actor& actor = actors_[earlier.actor];
    if (earlier.actor == viewer.actor) {
      if (actor.kind != Actors::Kind::group || !independent()) return true;
      return earlier.epoch <= viewer.synced || (earlier.shape == shape && shape.cells != 0);
    }
    // Between the groups and the user of one rank.
    const Actors::Actor& own = actors_[viewer.actor];
    if (actor.rank == own.rank && (actor.kind == Actors::Kind::user || own.kind == Actors::Kind::user) &&
        actor.kind != Actors::Kind::engine)
      return true;
    if (actor.component == none) return true;
    const Row& row = is_read && tracks_reads_ ? viewer.clock->reads : viewer.clock->accesses;
    return row[actor.component] >= earlier.epoch;
  }

  // --- reports

  // The flat step of an access, and the call of the plan in which it happened.
  std::pair<uint32_t, uint32_t> step_of(const Access& access) const {
    const Actors::Actor& actor = actors_[access.actor];
    if (actor.kind == Actors::Kind::engine) return {engines_[access.actor].steps[(access.epoch - 1) / 2], none};
    const FlatGroup& group = programs_[actor.plan]->groups[actor.index];
    const uint32_t call = (access.epoch - 1) / epochs_of_call(group);
    return {group.begin + (access.epoch - 1) % epochs_of_call(group) / 2, call};
  }

  Where where(uint32_t plan, uint32_t flat) const {
    Where where = programs_[plan]->where(flat);
    where.plan = static_cast<int>(plan);
    return where;
  }

  TraceStep trace_of(const Access& access) const {
    const Actors::Actor& actor = actors_[access.actor];
    if (actor.kind == Actors::Kind::user) {
      TraceStep step;
      step.where.plan = static_cast<int>(plan_);
      step.where.rank = actor.rank;
      step.text = "before call " + std::to_string(access.epoch - 1) + ", the user reads and writes input and output";
      return step;
    }
    const auto [flat, call] = step_of(access);
    std::string text = describe(*programs_[actor.plan], flat);
    if (actor.kind == Actors::Kind::engine) text += ", by the copy engine";
    if (call != none && call != state_->calls) text += ", in call " + std::to_string(call) + " of the plan";
    return {where(actor.plan, flat), text};
  }

  std::string name_of(const Access& access) const {
    const Actors::Actor& actor = actors_[access.actor];
    if (actor.kind == Actors::Kind::user) return "the user of rank " + std::to_string(actor.rank);
    const auto [flat, call] = step_of(access);
    std::string text = describe(where(actor.plan, flat));
    if (actor.plan != plan_) return text + " of plan " + std::to_string(actor.plan);
    if (call != none && call != state_->calls) text += " of an earlier call";
    return text;
  }

  // How much of the earlier actor's work is known to precede.
  TraceStep reason_of(const Access& earlier, bool is_read, const Viewer& viewer, const Where& at) const {
    const Actors::Actor& actor = actors_[earlier.actor];
    TraceStep step;
    step.where = at;
    if (earlier.actor == viewer.actor) {
      step.text = "no sync is between the two steps, so that other threads can be behind";
      return step;
    }
    const Row& row = is_read && tracks_reads_ ? viewer.clock->reads : viewer.clock->accesses;
    const uint32_t known = row[actor.component];
    if (actor.kind == Actors::Kind::user) {
      step.text = "nothing says here that rank " + std::to_string(actor.rank) + " has entered the call";
      return step;
    }
    const std::string who = actor.kind == Actors::Kind::engine ? "the copy engine" : "that group";
    if (known == 0) {
      step.text = "no step of " + who + " is known to precede";
      return step;
    }
    const auto [flat, call] = step_of({earlier.actor, known, {}});
    const std::string of_call = call != none && call != state_->calls ? " of call " + std::to_string(call) : "";
    const bool is_end = actor.kind == Actors::Kind::group && flat == programs_[actor.plan]->groups[actor.index].end;
    step.text = "of " + who + ", only the steps up to " + (is_end ? "the end" : describe(where(actor.plan, flat))) +
                of_call + " are known to precede";
    return step;
  }

  void report_race(uint32_t flat, const Operand& operand, bool is_write, const Access& earlier, bool earlier_is_write,
                   const Viewer& viewer) {
    const FlatStep& step = program_->steps[flat];
    finding_.property = Property::race;
    finding_.where = where(plan_, flat);
    finding_.message = std::string(is_write ? "writes " : "reads ") +
                       describe(*program_->plan, program_->rank_of(step), operand, step.step->count) +
                       ", not ordered after " + name_of(earlier) + ", which " +
                       (earlier_is_write ? "writes it" : "reads it");
    std::string text = describe(*program_, flat);
    if (actors_[viewer.actor].kind == Actors::Kind::engine) text += ", by the copy engine";
    if (state_->calls != 0) text += ", in call " + std::to_string(state_->calls) + " of the plan";
    finding_.trace = {
        trace_of(earlier), reason_of(earlier, !earlier_is_write, viewer, finding_.where), {finding_.where, text}};
  }

  void report_second_packets(uint32_t flat, const Operand& operand, const Access& earlier) {
    const FlatStep& step = program_->steps[flat];
    finding_.property = Property::race;
    finding_.where = where(plan_, flat);
    finding_.message = "writes packets to " +
                       describe(*program_->plan, program_->rank_of(step), operand, step.step->count) + " after " +
                       name_of(earlier) + " in the same call; a reader cannot tell which it sees";
    finding_.trace = {trace_of(earlier), {finding_.where, describe(*program_, flat)}};
  }

  void report_user_race(int rank, Buffer buffer, uint32_t chunk, const Access& access, bool is_write) {
    const TraceStep step = trace_of(access);
    finding_.property = Property::race;
    finding_.where = step.where;
    finding_.message = std::string(is_write ? "writes " : "reads ") + buffer_names[static_cast<size_t>(buffer)] +
                       " chunk " + std::to_string(chunk) + " of rank " + std::to_string(rank) +
                       ", whose call may have completed before";
    TraceStep user;
    user.where.plan = static_cast<int>(plan_);
    user.where.rank = rank;
    user.text = "the call completes on this rank, and its user reads and writes input and output";
    const Viewer viewer{actors_.user(rank), call_ + 2, &ranks_[static_cast<size_t>(rank)].end, 0};
    finding_.trace = {step, reason_of(access, !is_write, viewer, user.where), user};
  }

  const std::span<const Scheduled> plans_;
  const std::vector<const Program*> programs_;
  const std::vector<std::vector<MemoryMap>> maps_;
  const Actors actors_;
  Rows rows_;
  const bool tracks_reads_;
  std::vector<PlanState> states_;
  std::vector<EngineState> engines_;  // by actor
  std::vector<RankState> ranks_;
  std::vector<std::unordered_map<uint32_t, Logged>> scratch_log_;  // by rank and actor; if there are several plans

  uint32_t call_ = 0, plan_ = 0;
  const Program* program_ = nullptr;
  PlanState* state_ = nullptr;
  // Of steps that others come after: what they pass on, and how many still come.
  std::unordered_map<uint32_t, std::pair<Stamp, uint32_t>> completions_;
  std::vector<Passed> packets_;  // in scratch, of this call
  // Of steps with independent threads that received packets from rings in this call: the steps that sent them.
  std::unordered_map<uint32_t, std::vector<uint32_t>> received_;
  Finding finding_;
};

}  // namespace

Finding find_race(std::span<const Scheduled> plans, std::span<const uint32_t> calls) {
  std::vector<const Program*> programs;
  programs.reserve(plans.size());
  for (const Scheduled& plan : plans) programs.push_back(plan.program);
  return RaceSearch(plans, std::move(programs)).run(calls);
}

}  // namespace narrowcast::plan::verify
