#include "plan/verify/knowledge.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace narrowcast::plan::verify {

void Knowledge::begin_call(uint32_t plan, uint32_t call) {
  plan_ = plan;
  call_ = call;
  program_ = programs_[plan];
  state_ = &states_[plan];
  ++state_->calls;
  for (int rank = 0; rank < program_->plan->rank_count(); ++rank) {
    RankState& state = ranks_[static_cast<size_t>(rank)];
    state.entry = state.end;
    raise(state.entry, actors_.user(rank), call_ + 1);
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

void Knowledge::end_call() {
  for (int rank = 0; rank < program_->plan->rank_count(); ++rank) {
    const auto index = static_cast<size_t>(rank);
    Clock end = ranks_[index].entry;
    for (uint32_t group = program_->rank_groups[index]; group < program_->rank_groups[index + 1]; ++group) {
      join(end, all_seen(state_->groups[group]));
      raise(end, actor_of(group), state_->groups[group].base + epochs_of_call(program_->groups[group]) - 1);
    }
    ranks_[index].end = std::move(end);
  }
  first_packet_ += static_cast<uint32_t>(packets_.size());
  packets_.clear();
  received_.clear();
  completions_.clear();
}

void Knowledge::begin(uint32_t flat) {
  const FlatStep& step = program_->steps[flat];
  if (step.step->kind == StepKind::barrier) return pass_barrier(step);
  acquire_dependences(flat);
  switch (step.step->kind) {
    case StepKind::loop:
    case StepKind::sync: sync(step.group); break;
    case StepKind::signal: signal(flat, step); break;
    case StepKind::wait: wait(flat, step); break;
    case StepKind::flush: flush(step); break;
    default:
      for (const Operand& from : step.step->from) {
        if (from.place == Place::message) receive(from.channel, flat);
        if (from.packets) receive_packets(step, from);
      }
      start_engines(flat, step);
      find_polled(step);
  }
}

void Knowledge::finish(uint32_t flat) {
  const FlatStep& step = program_->steps[flat];
  for (const Operand& to : step.step->to)
    if (to.place == Place::message) {
      const bool packets = program_->plan->channels[to.channel].packets;
      Passed passed{packets ? reads_so_far(step.group) : release(step.group), flat, 0};
      state_->rings[to.channel].push(std::move(passed));
    }
  if (const uint32_t dependents = state_->dependents[flat]; dependents != 0)
    completions_.emplace(flat, std::pair(completion(step.group), dependents));
  ++state_->groups[step.group].next;
}

Viewer Knowledge::viewer(const FlatStep& step, uint32_t actor, bool is_write) const {
  const GroupState& group = state_->groups[step.group];
  const bool is_engine = actors_[actor].kind == Actors::Kind::engine;
  const uint32_t epoch =
      is_engine ? static_cast<uint32_t>(2 * (engines_[actor].steps.size() - 1)) : epoch_before(step.group);
  return {actor, epoch + (is_write ? 2 : 1), is_engine ? &engines_[actor].seen : polled_seen_, group.synced};
}

void Knowledge::write_packets(uint32_t flat, uint32_t actor, const Operand& operand) {
  const FlatStep& step = program_->steps[flat];
  const uint32_t number = first_packet_ + static_cast<uint32_t>(packets_.size());
  const bool is_engine = actors_[actor].kind == Actors::Kind::engine;
  packets_.push_back({is_engine ? engine_stamp(actor) : reads_so_far(step.group), flat, position_of(step, operand)});
  each_range(*program_, maps_[plan_][0], step, operand, [&](int, uint32_t first) {
    for (uint32_t cell = first; cell < first + step.cells; ++cell) state_->packets[cell + scratch_offset()] = number;
  });
}

bool Knowledge::is_ordered(const Access& earlier, bool is_read, const Viewer& viewer, const Shape& shape) const {
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

bool Knowledge::derives_from(uint32_t flat, uint32_t offset, const Access& read, uint32_t cell) {
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
        const uint32_t index = state_->packets[first + offset + scratch_offset()] - first_packet_;
        visit(packets_[index].flat, position_of(step, from) + offset - packets_[index].position);
      });
    }
    if (const auto found = received_.find(flat); found != received_.end())
      for (const uint32_t sender : found->second) visit(sender, offset);
  }
  return false;
}

std::pair<uint32_t, uint32_t> Knowledge::step_of(const Access& access) const {
  const Actors::Actor& actor = actors_[access.actor];
  if (actor.kind == Actors::Kind::engine) return {engines_[access.actor].steps[(access.epoch - 1) / 2], none};
  const FlatGroup& group = programs_[actor.plan]->groups[actor.index];
  const uint32_t call = (access.epoch - 1) / epochs_of_call(group);
  return {group.begin + (access.epoch - 1) % epochs_of_call(group) / 2, call};
}

std::vector<const Program*> Knowledge::programs_of(std::span<const Scheduled> plans) {
  std::vector<const Program*> programs;
  programs.reserve(plans.size());
  for (const Scheduled& plan : plans) programs.push_back(plan.program);
  return programs;
}

std::vector<std::vector<MemoryMap>> Knowledge::maps_of(const std::vector<const Program*>& programs) {
  std::vector<std::vector<MemoryMap>> maps;
  maps.reserve(programs.size());
  for (const Program* program : programs) maps.push_back(memory_maps(*program->plan, program->parts));
  return maps;
}

Knowledge::PlanState Knowledge::initial_state(uint32_t plan) const {
  const Program& program = *programs_[plan];
  PlanState state;
  state.groups.resize(program.groups.size());
  state.rings.resize(program.channels.size());
  state.semaphores.resize(program.channels.size());
  state.dependents.assign(program.steps.size(), 0);
  for (const FlatStep& step : program.steps)
    for (const StepId& id : step.step->after) ++state.dependents[program.end_of(program.rank_of(step), id) - 1];
  state.scratch_stride = maps_[plan][0].cells();
  if (program.has_packets) state.packets.assign(state.scratch_stride * program.plan->scratch_copies, none);
  return state;
}

void Knowledge::join(Clock& into, const Clock& other) {
  into.accesses.join(rows_, other.accesses);
  if (tracks_reads_) into.reads.join(rows_, other.reads);
}

void Knowledge::join(Clock& into, const Stamp& stamp) {
  // Who knows an epoch of a group knows what the group knew then.
  if (stamp.component != none && !independent() && !tracks_reads_ && into.accesses[stamp.component] >= stamp.epoch)
    return;
  join(into, stamp.clock);
  if (stamp.component == none) return;
  into.accesses.raise(rows_, stamp.component, stamp.epoch);
  if (tracks_reads_) into.reads.raise(rows_, stamp.component, stamp.read_epoch);
}

void Knowledge::raise(Clock& clock, uint32_t actor, uint32_t epoch) {
  const uint32_t component = actors_[actor].component;
  if (component == none) return;
  clock.accesses.raise(rows_, component, epoch);
  if (tracks_reads_) clock.reads.raise(rows_, component, epoch);
}

void Knowledge::join_reads(Clock& into, const Stamp& stamp) {
  into.reads.join(rows_, stamp.clock.reads);
  if (stamp.component != none) into.reads.raise(rows_, stamp.component, stamp.read_epoch);
}

Clock Knowledge::all_seen(const GroupState& group) {
  Clock clock = group.seen;
  if (independent()) join(clock, group.pending);
  return clock;
}

Stamp Knowledge::release(uint32_t group) {
  const GroupState& state = state_->groups[group];
  const uint32_t epoch = epoch_before(group) + 1;
  return {state.seen, actors_[actor_of(group)].component, independent() ? state.synced : epoch,
          independent() ? state.synced : epoch};
}

Stamp Knowledge::reads_so_far(uint32_t group) {
  return {all_seen(state_->groups[group]), actors_[actor_of(group)].component, 0, epoch_before(group) + 1};
}

Stamp Knowledge::completion(uint32_t group) {
  const uint32_t epoch = epoch_before(group) + 2;
  return {all_seen(state_->groups[group]), actors_[actor_of(group)].component, epoch, epoch};
}

Stamp Knowledge::engine_stamp(uint32_t engine) {
  const auto epoch = static_cast<uint32_t>(2 * engines_[engine].steps.size());
  return {engines_[engine].seen, actors_[engine].component, epoch, epoch};
}

void Knowledge::acquire_dependences(uint32_t flat) {
  const FlatStep& step = program_->steps[flat];
  for (const StepId& id : step.step->after) {
    const auto found = completions_.find(program_->end_of(program_->rank_of(step), id) - 1);
    join(state_->groups[step.group].seen, found->second.first);
    if (--found->second.second == 0) completions_.erase(found);
  }
}

void Knowledge::sync(uint32_t index) {
  GroupState& group = state_->groups[index];
  if (!independent()) return;
  join(group.seen, group.pending);
  forget_pending(group);
  group.synced = epoch_before(index);
}

void Knowledge::pass_barrier(const FlatStep& step) {
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

void Knowledge::signal(uint32_t flat, const FlatStep& step) {
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

void Knowledge::wait(uint32_t flat, const FlatStep& step) {
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

void Knowledge::acquire_signals(const FlatStep& step, uint32_t channel, uint64_t needed) {
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

uint64_t Knowledge::possibly_before(uint32_t channel, size_t i, size_t first, size_t last) const {
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

void Knowledge::flush(const FlatStep& step) {
  for (const uint32_t channel : step.step->channels)
    if (const uint32_t engine = actors_.engine(plan_, step.group, channel); engine != none)
      join(acquired(state_->groups[step.group]), engine_stamp(engine));
}

void Knowledge::find_polled(const FlatStep& step) {
  const GroupState& group = state_->groups[step.group];
  polled_seen_ = &group.seen;
  for (const auto& [cells, entries] : group.polled) {
    if (cells < step.cells) continue;
    if (polled_seen_ != &polled_) polled_ = group.seen;
    polled_seen_ = &polled_;
    join(polled_, entries);
  }
}

void Knowledge::receive(uint32_t channel, uint32_t flat) {
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

void Knowledge::receive_packets(const Passed& packets, const FlatStep& step) {
  GroupState& group = state_->groups[step.group];
  const Clock& entry = ranks_[static_cast<size_t>(program_->rank_of(program_->steps[packets.flat]))].entry;
  Clock& clock = acquired(group);
  join(clock, entry);
  join_reads(clock, packets.stamp);
  if (!independent()) return;
  auto same =
      std::find_if(group.polled.begin(), group.polled.end(), [&](const auto& one) { return one.first == step.cells; });
  if (same == group.polled.end()) same = group.polled.insert(same, {step.cells, {}});
  join(same->second, entry);
}

void Knowledge::receive_packets(const FlatStep& step, const Operand& operand) {
  uint32_t last = none;
  each_range(*program_, maps_[plan_][0], step, operand, [&](int, uint32_t first) {
    for (uint32_t cell = first; cell < first + step.cells; ++cell) {
      const uint32_t index = state_->packets[cell + scratch_offset()] - first_packet_;
      if (std::exchange(last, index) != index) receive_packets(packets_[index], step);
    }
  });
}

void Knowledge::start_engines(uint32_t flat, const FlatStep& step) {
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

}  // namespace narrowcast::plan::verify
