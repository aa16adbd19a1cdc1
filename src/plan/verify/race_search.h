// The search for races: executes calls one after another and tracks happens-before with vector clocks.
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
  // Keeps references.
  RaceSearch(const FlatPlan& flat_plan, std::span<const uint32_t> order, const SharedSemaphores& shared);

  Finding run(uint32_t calls);

 private:
  struct RankState {
    Clock entry;  // of the current call
    Clock end;    // of the previous call
  };

  PlanState initial_state() const;

  // Whether the threads of a group are only synchronized by sync steps.
  bool independent() const { return flat_plan_.plan->threads == Threads::independent; }

  // --- clocks

  void join(Clock& into, const Clock& other) {
    into.accesses.join(other.accesses);
    if (tracks_reads_) into.reads.join(other.reads);
  }
  void join(Clock& into, const Stamp& stamp) {
    // A clock that has reached an epoch of a group has also joined the clock that the group had then.
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

  uint32_t epoch_before(uint32_t group) const {
    const GroupState& state = state_.groups[group];
    return state.base + 2 * (state.next - flat_plan_.groups[group].begin);
  }
  Clock all_seen(const GroupState& group) {
    Clock clock = group.seen;
    if (independent()) join(clock, group.pending);
    return clock;
  }
  // The clock that an acquire operation updates.
  Clock& acquired(GroupState& group) { return independent() ? group.pending : group.seen; }

  // The stamp of a signal or message: all earlier steps of the group, and the reads of this one.
  Stamp release(uint32_t group) {
    const GroupState& state = state_.groups[group];
    const uint32_t epoch = epoch_before(group) + 1;
    return {state.seen, actors_[group].component, independent() ? state.synced : epoch,
            independent() ? state.synced : epoch};
  }
  // The stamp of packets: only the reads that the group has completed.
  Stamp reads_so_far(uint32_t group) {
    return {all_seen(state_.groups[group]), actors_[group].component, 0, epoch_before(group) + 1};
  }
  Stamp completion(uint32_t group) {
    const uint32_t epoch = epoch_before(group) + 2;
    return {all_seen(state_.groups[group]), actors_[group].component, epoch, epoch};
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
  // Acquires the signals that must have been sent once `needed` signals have been sent in all.
  void acquire_signals(const FlatStep& step, uint32_t channel, uint64_t needed);
  // Acquires all signals of the first calls on a semaphore that several groups signal.
  void acquire_calls(uint32_t channel, size_t calls, bool is_relaxed, Clock& clock);
  // is_relaxed: whether the wait is relaxed.
  void acquire(const Signal& signal, bool is_relaxed, Clock& clock);
  // Updates `followers` of earlier signals after a signal of a semaphore that several groups signal.
  void add_follower(uint32_t channel);

  void move(uint32_t flat, const FlatStep& step);
  void receive(uint32_t channel, uint32_t flat);
  // Packets prove that their writer has entered the call and completed its earlier reads, but do not make its writes
  // visible.
  void receive_packets(const Passed& packets, const FlatStep& step);
  void receive_packets(const FlatStep& step, const Operand& operand);
  // Starts the copy engines of the step's ports: they acquire what the group has released and execute their part of the
  // step.
  void start_engines(uint32_t flat, const FlatStep& step);

  // --- accesses: race_accesses.cc

  void access(uint32_t flat, const FlatStep& step, uint32_t actor, const Clock& clock, const Operand& operand,
              bool is_write);
  void read(Accesses& memory, Accesses::Cell& cell, const Access& access, const Viewer& viewer, uint32_t flat,
            const Operand& operand);
  void write(Accesses& memory, uint32_t index, Accesses::Cell& cell, const Access& access, const Viewer& viewer,
             uint32_t stamp, uint32_t flat, const Operand& operand);

  // Whether an earlier access happens before what the viewer does now. shape: of the access that it makes, if any.
  bool is_ordered(const Access& earlier, bool is_read, const Viewer& viewer, const Shape& shape = {}) const;
  // Whether cell `offset` of what the step stores was computed from the value that `read` read in `cell`. Follows
  // packets back to the steps that wrote them. The packets are still in scratch, because each location receives packets
  // once per call.
  bool derives_from(uint32_t flat, uint32_t offset, const Access& read, uint32_t cell);

  uint32_t position_of(const FlatStep& step, const Operand& operand) const {
    return operand.chunk * flat_plan_.parts + step.first;
  }
  size_t scratch_offset() const { return call_ % flat_plan_.plan->scratch_copies * state_.scratch_stride; }

  // --- reports: race_report.cc

  // The flat step of an access, and the call in which it happened.
  std::pair<uint32_t, uint32_t> step_of(const Access& access) const;
  TraceStep trace_of(const Access& access) const;
  std::string name_of(const Access& access) const;
  // The last step of the earlier actor that is known to happen before the access.
  TraceStep reason_of(const Access& earlier, bool is_read, const Viewer& viewer, const Where& at) const;

  void report_race(uint32_t flat, const Operand& operand, bool is_write, const Access& earlier, bool earlier_is_write,
                   const Viewer& viewer);
  void report_second_packets(uint32_t flat, const Operand& operand, const Access& earlier);
  void report_user_race(int rank, Buffer buffer, uint32_t chunk, const Access& access, bool is_write);

  HeldMemory memory_;
  const FlatPlan& flat_plan_;
  const std::span<const uint32_t> order_;
  const SharedSemaphores& shared_;
  const std::vector<MemoryMap> maps_;
  const Actors actors_;
  const bool tracks_reads_;
  PlanState state_;
  std::vector<EngineState> engines_;  // by actor
  std::vector<RankState> ranks_;

  uint32_t call_ = 0;
  // Stamps of completed steps that other steps depend on, with the number of dependents still to come.
  std::unordered_map<uint32_t, std::pair<Stamp, uint32_t>> completions_;
  std::vector<Passed> packets_;  // written to scratch in this call
  // If threads are independent: by step that received packets from rings in this call, the steps that sent them.
  std::unordered_map<uint32_t, std::vector<uint32_t>> received_;
  Finding finding_;
};

}  // namespace narrowcast::plan::verify
