// The begin and end of calls: what they order, and what users do in between.
#include "plan/verify/races.h"

#include <utility>

#include "plan/verify/race_search.h"

namespace narrowcast::plan::verify {

RaceSearch::RaceSearch(const FlatPlan& flat_plan, std::span<const uint32_t> order, const SharedSemaphores& shared)
    : flat_plan_(flat_plan),
      order_(order),
      shared_(shared),
      maps_(memory_maps(*flat_plan.plan, flat_plan.parts)),
      actors_(flat_plan, maps_),
      tracks_reads_(flat_plan.has_packets || flat_plan.has_relaxed),
      engines_(actors_.count()),
      ranks_(static_cast<size_t>(flat_plan.plan->rank_count())) {
  check_limit("groups that share memory with others, on all ranks:", actors_.components(), max_clock_entries);
  state_ = initial_state();
}

Finding RaceSearch::run(uint32_t calls) {
  for (call_ = 0; call_ < calls; ++call_) {
    begin_call();
    for (const uint32_t flat : order_) {
      execute(flat);
      if (finding_.found()) return std::move(finding_);
    }
    end_call();
    if (finding_.found()) return std::move(finding_);
  }
  return {};
}

PlanState RaceSearch::initial_state() const {
  PlanState state;
  state.groups.resize(flat_plan_.groups.size());
  state.rings.resize(flat_plan_.channels.size());
  state.semaphores.resize(flat_plan_.channels.size());
  state.dependents.assign(flat_plan_.steps.size(), 0);
  for (const FlatStep& step : flat_plan_.steps)
    for (const StepId& id : step.step->after) ++state.dependents[flat_plan_.end_of(flat_plan_.rank_of(step), id) - 1];
  for (const MemoryMap& map : maps_) state.memory.emplace_back(map.cells() * size_t{flat_plan_.plan->scratch_copies});
  state.scratch_stride = maps_[0].cells();
  return state;
}

void RaceSearch::begin_call() {
  for (int rank = 0; rank < flat_plan_.plan->rank_count(); ++rank) {
    RankState& state = ranks_[static_cast<size_t>(rank)];
    state.entry = state.end;
    raise(state.entry, actors_.user(rank), call_ + 1);
    if (actors_.is_visited(rank)) let_user_write(rank);
  }
  for (uint32_t group = 0; group < flat_plan_.groups.size(); ++group) {
    const FlatGroup& flat = flat_plan_.groups[group];
    GroupState& state = state_.groups[group];
    state.seen = ranks_[static_cast<size_t>(flat.rank)].entry;
    forget_pending(state);
    state.base = call_ * epochs_of_call(flat);
    state.synced = state.base;
    state.next = flat.begin;
  }
  for (Semaphore& semaphore : state_.semaphores) semaphore.waits = 0;
}

template <typename Visit>
void RaceSearch::each_user_cell(int rank, Visit visit) {
  for (size_t map = 0; map < maps_.size(); ++map)
    for (const Buffer buffer : {Buffer::input, Buffer::output}) {
      const uint32_t first = maps_[map].base(rank, buffer);
      const uint32_t cells = flat_plan_.parts * flat_plan_.plan->buffer_chunks(rank, buffer);
      for (uint32_t cell = first; cell < first + cells; ++cell)
        visit(state_.memory[map], state_.memory[map][cell], buffer, (cell - first) / flat_plan_.parts);
    }
}

void RaceSearch::let_user_write(int rank) {
  each_user_cell(rank, [&](Accesses& memory, Accesses::Cell& cell, Buffer, uint32_t) {
    memory.filter_readers(cell, [](const Access&) { return true; });
    cell.write = {actors_.user(rank), call_ + 1, {}};
  });
}

void RaceSearch::end_call() {
  for (int rank = 0; rank < flat_plan_.plan->rank_count(); ++rank) {
    RankState& state = ranks_[static_cast<size_t>(rank)];
    Clock end = state.entry;
    const size_t index = static_cast<size_t>(rank);
    for (uint32_t group = flat_plan_.rank_groups[index]; group < flat_plan_.rank_groups[index + 1]; ++group) {
      join(end, all_seen(state_.groups[group]));
      raise(end, group, state_.groups[group].base + epochs_of_call(flat_plan_.groups[group]) - 1);
    }
    state.end = std::move(end);
    if (actors_.is_visited(rank)) check_user(rank);
    if (finding_.found()) return;
  }
  packets_.clear();
  received_.clear();
  completions_.clear();
}

void RaceSearch::check_user(int rank) {
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

Finding find_race(const FlatPlan& flat_plan, std::span<const uint32_t> order, const SharedSemaphores& shared,
                  uint32_t calls) {
  return RaceSearch(flat_plan, order, shared).run(calls);
}

}  // namespace narrowcast::plan::verify
