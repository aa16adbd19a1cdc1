// Execution of steps: what groups and copy engines acquire and release.
#include <algorithm>
#include <utility>

#include "plan/verify/race_search.h"

namespace narrowcast::plan::verify {

void RaceSearch::execute(uint32_t flat) {
  const FlatStep& step = flat_plan_.steps[flat];
  GroupState& group = state_.groups[step.group];
  spend(300);
  if (step.step->kind == StepKind::barrier) return pass_barrier(step);
  acquire_dependences(flat);
  switch (step.step->kind) {
    case StepKind::loop:
    case StepKind::sync: sync(step.group); break;
    case StepKind::signal: signal(flat, step); break;
    case StepKind::wait: wait(flat, step); break;
    case StepKind::flush:
      for (const uint32_t channel : step.step->channels)
        if (const uint32_t engine = actors_.engine(step.group, channel); engine != none)
          join(acquired(group), engine_stamp(engine));
      break;
    default: move(flat, step);
  }
  finish(flat);
}

void RaceSearch::acquire_dependences(uint32_t flat) {
  const FlatStep& step = flat_plan_.steps[flat];
  spend(20 * step.step->after.size());
  for (const StepId& id : step.step->after) {
    const auto found = completions_.find(flat_plan_.end_of(flat_plan_.rank_of(step), id) - 1);
    join(state_.groups[step.group].seen, found->second.first);
    if (--found->second.second == 0) completions_.erase(found);
  }
}

void RaceSearch::finish(uint32_t flat) {
  const uint32_t group = flat_plan_.steps[flat].group;
  if (const uint32_t dependents = state_.dependents[flat]; dependents != 0)
    completions_.emplace(flat, std::pair(completion(group), dependents));
  ++state_.groups[group].next;
}

void RaceSearch::sync(uint32_t index) {
  GroupState& group = state_.groups[index];
  if (!independent()) return;
  join(group.seen, group.pending);
  forget_pending(group);
  group.synced = epoch_before(index);
}

void RaceSearch::pass_barrier(const FlatStep& step) {
  const uint32_t barrier = flat_plan_.rank_barriers[static_cast<size_t>(flat_plan_.rank_of(step))] + step.step->barrier;
  const std::vector<uint32_t>& members = flat_plan_.barriers[barrier];
  spend(50 * members.size());
  Clock clock;
  for (const uint32_t member : members) {
    acquire_dependences(state_.groups[member].next);
    join(clock, all_seen(state_.groups[member]));
  }
  for (const uint32_t member : members) raise(clock, member, epoch_before(member));
  for (const uint32_t member : members) {
    sync(member);
    state_.groups[member].seen = clock;
  }
  for (const uint32_t member : members) finish(state_.groups[member].next);
}

void RaceSearch::signal(uint32_t flat, const FlatStep& step) {
  const Clock& entry = ranks_[static_cast<size_t>(flat_plan_.rank_of(step))].entry;
  memory_.grow(step.step->channels.size() * sizeof(Signal));
  for (size_t position = 0; position < step.step->channels.size(); ++position) {
    spend(50);
    const uint32_t channel = step.step->channels[position];
    Signal signal{release(step.group),
                  entry,
                  step.group,
                  actors_[step.group].component,
                  epoch_before(step.group) + 2,
                  shared_.signal_index(flat, position),
                  step.step->relaxed};
    if (const uint32_t engine = actors_.engine(step.group, channel); engine != none) {
      Stamp& stamp = signal.stamp;
      join(stamp.clock, Stamp(stamp));
      join(stamp.clock, engine_stamp(engine));
      stamp.component = none;
    }
    state_.semaphores[channel].signals.push(std::move(signal));
    if (flat_plan_.channels[channel].signallers.size() > 1) add_follower(channel);
  }
}

void RaceSearch::wait(uint32_t flat, const FlatStep& step) {
  for (size_t position = 0; position < step.step->channels.size(); ++position) {
    const uint32_t channel = step.step->channels[position];
    const SignalsNeeded* shared = shared_.needed(flat, position);
    const uint32_t waits = shared != nullptr ? shared->least : ++state_.semaphores[channel].waits;
    // The number of signals that must have been sent.
    const int64_t needed =
        int64_t{call_} * flat_plan_.channels[channel].signals + waits - flat_plan_.plan->channels[channel].initial;
    if (needed > 0) acquire_signals(step, channel, static_cast<uint64_t>(needed));
  }
}

void RaceSearch::acquire(const Signal& signal, bool is_relaxed, Clock& clock) {
  if (!signal.relaxed && !is_relaxed) return join(clock, signal.stamp);
  join(clock, signal.entry);
  join_reads(clock, signal.stamp);
}

void RaceSearch::acquire_signals(const FlatStep& step, uint32_t channel, uint64_t needed) {
  const FlatChannel& flat = flat_plan_.channels[channel];
  Semaphore& semaphore = state_.semaphores[channel];
  Clock& clock = acquired(state_.groups[step.group]);
  const bool is_relaxed = step.step->relaxed;
  if (flat.signallers.size() == 1) {
    const size_t count = needed - semaphore.dropped;
    spend(10 * count);
    // The last one first: it usually implies the others.
    for (size_t i = count; i-- > 0;) acquire(semaphore.signals[i], is_relaxed, clock);
    if (flat.waiters.size() > 1) return;
    semaphore.signals.drop(count);
    semaphore.dropped = needed;
    return;
  }
  // The calls of the signalling rank are ordered. In the last one, a signal has been sent for certain if fewer others
  // than needed can have been sent before it.
  const size_t calls = (needed - 1) / flat.signals, first = calls * flat.signals;
  acquire_calls(channel, calls, is_relaxed, clock);
  const size_t last = std::min<size_t>(semaphore.signals.size(), first + flat.signals);
  spend(5 * (last - first));
  for (size_t i = first; i < last; ++i)
    if (const Signal& signal = semaphore.signals[i];
        shared_.others_before(channel, signal.index) - signal.followers < needed - first)
      acquire(signal, is_relaxed, clock);
}

void RaceSearch::acquire_calls(uint32_t channel, size_t calls, bool is_relaxed, Clock& clock) {
  Semaphore& semaphore = state_.semaphores[channel];
  std::vector<std::array<Clock, 2>>& learned = semaphore.learned;
  for (const size_t signals = flat_plan_.channels[channel].signals; learned.size() <= calls;) {
    std::array<Clock, 2> next = learned.back();
    for (size_t i = (learned.size() - 1) * signals; i < learned.size() * signals; ++i)
      for (const size_t relaxed : {0, 1}) acquire(semaphore.signals[i], relaxed == 1, next[relaxed]);
    learned.push_back(std::move(next));
  }
  join(clock, learned[calls][is_relaxed ? 1 : 0]);
}

void RaceSearch::add_follower(uint32_t channel) {
  Queue<Signal>& signals = state_.semaphores[channel].signals;  // of all calls
  const SharedSemaphores& shared = shared_;
  const size_t last = signals.size() - 1;
  spend(5 * (last % flat_plan_.channels[channel].signals));
  for (size_t i = last - last % flat_plan_.channels[channel].signals; i < last; ++i)
    if (!shared.follows(channel, signals[last].index, signals[i].index) &&
        signals[last].stamp.clock.accesses[signals[i].component] >= signals[i].completion)
      ++signals[i].followers;
}

void RaceSearch::move(uint32_t flat, const FlatStep& step) {
  GroupState& group = state_.groups[step.group];
  for (const Operand& from : step.step->from) {
    if (from.place == Place::message) receive(from.channel, flat);
    if (from.packets) receive_packets(step, from);
  }
  start_engines(flat, step);
  Clock polled;
  const Clock* clock = &group.seen;
  for (const auto& [cells, entries] : group.polled) {
    spend(5);
    if (cells < step.cells) continue;
    if (clock != &polled) polled = group.seen;
    clock = &polled;
    join(polled, entries);
  }
  each_access(actors_, step, [&](uint32_t actor, const Operand& operand, bool is_write) {
    if (!finding_.found()) access(flat, step, actor, *clock, operand, is_write);
  });
  for (const Operand& to : step.step->to)
    if (to.place == Place::message) {
      const bool packets = flat_plan_.plan->channels[to.channel].packets;
      Passed passed{packets ? reads_so_far(step.group) : release(step.group), flat, 0};
      memory_.grow(sizeof(Passed));
      state_.rings[to.channel].push(std::move(passed));
    }
}

void RaceSearch::receive(uint32_t channel, uint32_t flat) {
  const FlatStep& step = flat_plan_.steps[flat];
  Queue<Passed>& ring = state_.rings[channel];
  if (flat_plan_.plan->channels[channel].packets) {
    receive_packets(ring[0], step);
    if (independent()) received_[flat].push_back(ring[0].flat);
  } else {
    join(acquired(state_.groups[step.group]), ring[0].stamp);
  }
  ring.drop(1);
}

void RaceSearch::receive_packets(const Passed& packets, const FlatStep& step) {
  GroupState& group = state_.groups[step.group];
  const Clock& entry = ranks_[static_cast<size_t>(flat_plan_.rank_of(flat_plan_.steps[packets.flat]))].entry;
  Clock& clock = acquired(group);
  join(clock, entry);
  join_reads(clock, packets.stamp);
  if (!independent()) return;
  auto same =
      std::find_if(group.polled.begin(), group.polled.end(), [&](const auto& one) { return one.first == step.cells; });
  if (same == group.polled.end()) same = group.polled.insert(same, {step.cells, {}});
  join(same->second, entry);
}

void RaceSearch::receive_packets(const FlatStep& step, const Operand& operand) {
  uint32_t last = none;
  each_range(flat_plan_, maps_[0], step, operand, [&](int, uint32_t first) {
    spend(step.cells);
    for (uint32_t cell = first; cell < first + step.cells; ++cell) {
      const uint32_t index = state_.memory[0][cell + scratch_offset()].packet_stamp;
      if (std::exchange(last, index) != index) receive_packets(packets_[index], step);
    }
  });
}

void RaceSearch::start_engines(uint32_t flat, const FlatStep& step) {
  for (const auto* operands : {&step.step->from, &step.step->to})
    for (const Operand& operand : *operands) {
      if (operand.place != Place::remote) continue;
      const uint32_t engine = actors_.engine(step.group, operand.channel);
      if (engine == none) continue;
      join(engines_[engine].seen, release(step.group));
      engines_[engine].steps.push_back(flat);
    }
}

}  // namespace narrowcast::plan::verify
