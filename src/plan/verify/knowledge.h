// Follows the order of steps over several successive calls: what every group, copy engine and user knows to precede.
// docs/design/plans.md, "What orders accesses", has the rules.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plan/verify/accesses.h"
#include "plan/verify/actors.h"
#include "plan/verify/races.h"
#include "plan/verify/stamps.h"

namespace narrowcast::plan::verify {

// Who makes an access, and what it knows then.
struct Viewer {
  uint32_t actor;
  uint32_t epoch;  // of the access
  const Clock* clock;
  uint32_t synced;
};

class Knowledge {
 public:
  explicit Knowledge(std::span<const Scheduled> plans)
      : plans_(plans),
        programs_(programs_of(plans)),
        maps_(maps_of(programs_)),
        actors_(programs_, maps_),
        rows_(actors_.components()),
        tracks_reads_(orders_reads(programs_)),
        engines_(actors_.count()),
        ranks_(static_cast<size_t>(programs_[0]->plan->rank_count())) {
    for (uint32_t plan = 0; plan < programs_.size(); ++plan) states_.push_back(initial_state(plan));
  }

  // --- the call

  uint32_t plan() const { return plan_; }
  uint32_t call() const { return call_; }                  // in the sequence
  uint32_t call_of_plan() const { return state_->calls; }  // calls of the same plan before this one
  const Program& program() const { return *program_; }
  const Program& program(uint32_t plan) const { return *programs_[plan]; }
  const std::vector<MemoryMap>& maps(uint32_t plan) const { return maps_[plan]; }
  const Actors& actors() const { return actors_; }

  void begin_call(uint32_t plan, uint32_t call);
  void end_call();

  // The access of a rank's user before the call, and what the user knows after it.
  Access user_access(int rank) const { return {actors_.user(rank), call_ + 1, {}}; }
  Viewer user(int rank) const { return {actors_.user(rank), call_ + 2, &ranks_[static_cast<size_t>(rank)].end, 0}; }

  // --- steps

  // Executes a step except for its accesses and what it sends. finish() must follow, except after barriers.
  void begin(uint32_t flat);
  void finish(uint32_t flat);

  // Who makes an access of the step: its group or an engine.
  Viewer viewer(const FlatStep& step, uint32_t actor, bool is_write) const;

  // The step writes packets to a range of scratch cells.
  void write_packets(uint32_t flat, uint32_t actor, const Operand& operand);
  // Whether the scratch cell has received packets in this call.
  bool has_packets(uint32_t cell) const {
    const uint32_t number = state_->packets[cell + scratch_offset()];
    return number != none && number >= first_packet_;
  }

  size_t scratch_offset() const { return state_->calls % program_->plan->scratch_copies * state_->scratch_stride; }

  // --- order

  // Whether an earlier access precedes what the viewer does now. shape: of the access that it makes, if any.
  bool is_ordered(const Access& earlier, bool is_read, const Viewer& viewer, const Shape& shape = {}) const;

  // The epoch up to which the viewer knows the other actor's accesses, or its reads.
  uint32_t known(uint32_t actor, bool is_read, const Viewer& viewer) const {
    const Row& row = is_read && tracks_reads_ ? viewer.clock->reads : viewer.clock->accesses;
    return row[actors_[actor].component];
  }

  // Whether cell `offset` of what the step stores was computed from what `read` read there. Follows packets back to the
  // steps that wrote them; they are still in scratch, because a place receives packets once in a call.
  bool derives_from(uint32_t flat, uint32_t offset, const Access& read, uint32_t cell);

  // The flat step of an access, and the call of the plan in which it happened.
  std::pair<uint32_t, uint32_t> step_of(const Access& access) const;

 private:
  struct PlanState {
    std::vector<GroupState> groups;
    std::vector<Queue<Passed>> rings;
    std::vector<Semaphore> semaphores;
    std::vector<uint32_t> dependents;  // of each flat step: how many flat steps come after it
    std::vector<uint32_t> packets;     // of each scratch cell: the number of the packets that it received last
    size_t scratch_stride = 0;         // from one copy of the scratch to the next
    uint32_t calls = UINT32_MAX;       // before the current one
  };
  struct RankState {
    Clock entry;  // of the current call
    Clock end;    // of the previous call
  };

  static std::vector<const Program*> programs_of(std::span<const Scheduled> plans);
  static std::vector<std::vector<MemoryMap>> maps_of(const std::vector<const Program*>& programs);
  static bool orders_reads(const std::vector<const Program*>& programs) {
    return std::any_of(programs.begin(), programs.end(),
                       [](const Program* program) { return program->has_packets || program->has_relaxed; });
  }

  PlanState initial_state(uint32_t plan) const;

  bool independent() const { return program_->plan->threads == Threads::independent; }
  static uint32_t epochs_of_call(const FlatGroup& group) { return 2 * (group.end - group.begin) + 2; }

  void join(Clock& into, const Clock& other);
  void join(Clock& into, const Stamp& stamp);
  void raise(Clock& clock, uint32_t actor, uint32_t epoch);
  void join_reads(Clock& into, const Stamp& stamp);

  uint32_t actor_of(uint32_t group) const { return actors_.group(plan_, group); }
  uint32_t epoch_before(uint32_t group) const {
    const GroupState& state = state_->groups[group];
    return state.base + 2 * (state.next - program_->groups[group].begin);
  }
  Clock all_seen(const GroupState& group);
  // Where acquired clocks go.
  Clock& acquired(GroupState& group) { return independent() ? group.pending : group.seen; }

  // What a group passes on while it executes a step: all earlier steps, and the reads of this one.
  Stamp release(uint32_t group);
  // What packets pass on: the reads so far.
  Stamp reads_so_far(uint32_t group);
  Stamp completion(uint32_t group);
  Stamp engine_stamp(uint32_t engine);
  void acquire_dependences(uint32_t flat);
  void sync(uint32_t index);

  static void forget_pending(GroupState& group) {
    group.pending = {};
    group.polled.clear();
  }

  void pass_barrier(const FlatStep& step);
  void signal(uint32_t flat, const FlatStep& step);
  void wait(uint32_t flat, const FlatStep& step);

  // Acquires the signals that have been sent whenever `needed` have been sent in all.
  void acquire_signals(const FlatStep& step, uint32_t channel, uint64_t needed);

  // How many of the signals of a call can be sent before the i-th of the queue. [first, last): those of this call that
  // have been sent so far.
  uint64_t possibly_before(uint32_t channel, size_t i, size_t first, size_t last) const;
  void flush(const FlatStep& step);

  // What the group knows when it accesses memory in this step.
  void find_polled(const FlatStep& step);
  void receive(uint32_t channel, uint32_t flat);
  // Packets say that their writer has entered the call, and how far its reads are.
  void receive_packets(const Passed& packets, const FlatStep& step);
  void receive_packets(const FlatStep& step, const Operand& operand);

  uint32_t position_of(const FlatStep& step, const Operand& operand) const {
    return operand.chunk * program_->parts + step.first;
  }

  // The engines of the step's ports have what the group passes on, and execute their part of the step.
  void start_engines(uint32_t flat, const FlatStep& step);

  const std::span<const Scheduled> plans_;
  const std::vector<const Program*> programs_;
  const std::vector<std::vector<MemoryMap>> maps_;
  const Actors actors_;
  Rows rows_;
  const bool tracks_reads_;
  std::vector<PlanState> states_;
  std::vector<EngineState> engines_;  // by actor
  std::vector<RankState> ranks_;

  uint32_t call_ = 0, plan_ = 0;
  const Program* program_ = nullptr;
  PlanState* state_ = nullptr;
  Clock polled_;
  const Clock* polled_seen_ = nullptr;
  // Of steps that others come after: what they pass on, and how many still come.
  std::unordered_map<uint32_t, std::pair<Stamp, uint32_t>> completions_;
  std::vector<Passed> packets_;  // in scratch, of this call
  uint32_t first_packet_ = 0;    // the number of the first of them
  // Of steps with independent threads that received packets from rings in this call: the steps that sent them.
  std::unordered_map<uint32_t, std::vector<uint32_t>> received_;
};

}  // namespace narrowcast::plan::verify
