// The search for races: executes calls one after another, with vector clocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plan/verify/actors.h"
#include "plan/verify/race_state.h"
#include "plan/verify/races.h"

namespace narrowcast::plan::verify {

class RaceSearch {
 public:
  RaceSearch(std::span<const OrderedPlan> plans, std::vector<const FlatPlan*> flat_plans);

  Finding run(std::span<const uint32_t> calls);

 private:
  struct RankState {
    Clock entry;  // of the current call
    Clock end;    // of the previous call
  };
  // The last accesses of an actor to the scratch of a rank.
  struct Logged {
    Access read, write;
  };

  PlanState initial_state(uint32_t plan) const;

  // Whether the threads of a group only wait for each other at syncs.
  bool independent() const { return flat_plan_->plan->threads == Threads::independent; }

  // --- clocks

  void join(Clock& into, const Clock& other) {
    into.accesses.join(other.accesses);
    if (tracks_reads_) into.reads.join(other.reads);
  }
  void join(Clock& into, const Stamp& stamp) {
    // Who knows an epoch of a group knows what the group knew then.
    if (stamp.component != none && !independent() && !tracks_reads_ && into.accesses[stamp.component] >= stamp.epoch)
      return;
    join(into, stamp.clock);
    if (stamp.component == none) return;
    into.accesses.raise(stamp.component, stamp.epoch, actors_.components());
    if (tracks_reads_) into.reads.raise(stamp.component, stamp.read_epoch, actors_.components());
  }
  void raise(Clock& clock, uint32_t actor, uint32_t epoch) {
    const uint32_t component = actors_[actor].component;
    if (component == none) return;
    clock.accesses.raise(component, epoch, actors_.components());
    if (tracks_reads_) clock.reads.raise(component, epoch, actors_.components());
  }

  void join_reads(Clock& into, const Stamp& stamp) {
    into.reads.join(stamp.clock.reads);
    if (stamp.component != none) into.reads.raise(stamp.component, stamp.read_epoch, actors_.components());
  }

  uint32_t actor_of(uint32_t group) const { return actors_.group(plan_, group); }
  uint32_t epoch_before(uint32_t group) const {
    const GroupState& state = state_->groups[group];
    return state.base + 2 * (state.next - flat_plan_->groups[group].begin);
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

  static uint32_t epochs_of_call(const FlatGroup& group) { return 2 * (group.end - group.begin) + 2; }
  static void forget_pending(GroupState& group) {
    group.pending = {};
    group.polled.clear();
  }

  // --- calls: races.cc

  void begin_call();
  void end_call();
  void let_user_write(int rank);
  void check_user(int rank);
  template <typename Visit>
  void each_user_cell(int rank, Visit visit);

  // --- steps: race_steps.cc

  void execute(uint32_t flat);
  void acquire_dependences(uint32_t flat);
  void finish(uint32_t flat);

  void sync(uint32_t index);
  void pass_barrier(const FlatStep& step);
  void signal(uint32_t flat, const FlatStep& step);
  void wait(uint32_t flat, const FlatStep& step);
  // Acquires the signals that have been sent whenever `needed` have been sent in all.
  void acquire_signals(const FlatStep& step, uint32_t channel, uint64_t needed);
  // Acquires the signals of the first calls, of a semaphore that several groups signal.
  void acquire_calls(uint32_t channel, size_t calls, bool is_relaxed, Clock& clock);
  // is_relaxed: the wait.
  void acquire(const Signal& signal, bool is_relaxed, Clock& clock);
  // Counts the last signal of a semaphore of several groups as a follower of others.
  void add_follower(uint32_t channel);

  void move(uint32_t flat, const FlatStep& step);
  void receive(uint32_t channel, uint32_t flat);
  // Packets say that their writer has entered the call, and how far its reads are.
  void receive_packets(const Passed& packets, const FlatStep& step);
  void receive_packets(const FlatStep& step, const Operand& operand);
  // The engines of the step's ports have what the group passes on, and execute their part of the step.
  void start_engines(uint32_t flat, const FlatStep& step);

  // --- accesses: race_accesses.cc

  void access(uint32_t flat, const FlatStep& step, uint32_t actor, const Clock& clock, const Operand& operand,
              bool is_write);
  void read(Accesses& memory, Accesses::Cell& cell, const Access& access, const Viewer& viewer, uint32_t flat,
            const Operand& operand);
  void write(Accesses& memory, uint32_t index, Accesses::Cell& cell, const Access& access, const Viewer& viewer,
             uint32_t stamp, uint32_t flat, const Operand& operand);
  // Other plans divide the scratch differently: each access conflicts with all of theirs.
  void log_scratch(int rank, const Access& access, const Viewer& viewer, bool is_write, uint32_t flat,
                   const Operand& operand);

  // Whether an earlier access precedes what the viewer does now. shape: of the access that it makes, if any.
  bool is_ordered(const Access& earlier, bool is_read, const Viewer& viewer, const Shape& shape = {}) const;
  // Whether cell `offset` of what the step stores was computed from what `read` read there. Follows packets back to the
  // steps that wrote them; they are still in scratch, because a place receives packets once in a call.
  bool derives_from(uint32_t flat, uint32_t offset, const Access& read, uint32_t cell);

  uint32_t position_of(const FlatStep& step, const Operand& operand) const {
    return operand.chunk * flat_plan_->parts + step.first;
  }
  size_t scratch_offset() const { return state_->calls % flat_plan_->plan->scratch_copies * state_->scratch_stride; }

  // --- reports: race_report.cc

  // The flat step of an access, and the call of the plan in which it happened.
  std::pair<uint32_t, uint32_t> step_of(const Access& access) const;
  Where where(uint32_t plan, uint32_t flat) const;
  TraceStep trace_of(const Access& access) const;
  std::string name_of(const Access& access) const;
  // How much of the earlier actor's work is known to precede.
  TraceStep reason_of(const Access& earlier, bool is_read, const Viewer& viewer, const Where& at) const;

  void report_race(uint32_t flat, const Operand& operand, bool is_write, const Access& earlier, bool earlier_is_write,
                   const Viewer& viewer);
  void report_second_packets(uint32_t flat, const Operand& operand, const Access& earlier);
  void report_user_race(int rank, Buffer buffer, uint32_t chunk, const Access& access, bool is_write);

  HeldMemory memory_;
  const std::span<const OrderedPlan> plans_;
  const std::vector<const FlatPlan*> flat_plans_;
  const std::vector<std::vector<MemoryMap>> maps_;
  const Actors actors_;
  const bool tracks_reads_;
  std::vector<PlanState> states_;
  std::vector<EngineState> engines_;  // by actor
  std::vector<RankState> ranks_;
  std::vector<std::unordered_map<uint32_t, Logged>> scratch_log_;  // by rank and actor; if there are several plans

  uint32_t call_ = 0, plan_ = 0;
  const FlatPlan* flat_plan_ = nullptr;
  PlanState* state_ = nullptr;
  // Of steps that others come after: what they pass on, and how many still come.
  std::unordered_map<uint32_t, std::pair<Stamp, uint32_t>> completions_;
  std::vector<Passed> packets_;  // in scratch, of this call
  // Of steps with independent threads that received packets from rings in this call: the steps that sent them.
  std::unordered_map<uint32_t, std::vector<uint32_t>> received_;
  Finding finding_;
};

}  // namespace narrowcast::plan::verify
