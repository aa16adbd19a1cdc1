// The begin and end of calls: what they order, and what users do in between.
#include "plan/verify/races.h"

#include <algorithm>
#include <utility>

#include "plan/verify/race_search.h"

namespace narrowcast::plan::verify {

namespace {

std::vector<std::vector<MemoryMap>> maps_of(const std::vector<const Program*>& programs) {
  std::vector<std::vector<MemoryMap>> maps;
  maps.reserve(programs.size());
  for (const Program* program : programs) maps.push_back(memory_maps(*program->plan, program->parts));
  return maps;
}

bool orders_reads(const std::vector<const Program*>& programs) {
  return std::any_of(programs.begin(), programs.end(),
                     [](const Program* program) { return program->has_packets || program->has_relaxed; });
}

}  // namespace

RaceSearch::RaceSearch(std::span<const Scheduled> plans, std::vector<const Program*> programs)
    : plans_(plans),
      programs_(std::move(programs)),
      maps_(maps_of(programs_)),
      actors_(programs_, maps_),
      tracks_reads_(orders_reads(programs_)),
      engines_(actors_.count()),
      ranks_(static_cast<size_t>(programs_[0]->plan->rank_count())),
      scratch_log_(ranks_.size()) {
  check_limit("groups that share memory with others, on all ranks:", actors_.components(), max_clock_entries);
  for (uint32_t plan = 0; plan < programs_.size(); ++plan) states_.push_back(initial_state(plan));
}

Finding RaceSearch::run(std::span<const uint32_t> calls) {
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

PlanState RaceSearch::initial_state(uint32_t plan) const {
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

void RaceSearch::begin_call() {
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

template <typename Visit>
void RaceSearch::each_user_cell(int rank, Visit visit) {
  for (size_t map = 0; map < maps_[plan_].size(); ++map)
    for (const Buffer buffer : {Buffer::input, Buffer::output}) {
      const uint32_t first = maps_[plan_][map].base(rank, buffer);
      const uint32_t cells = program_->parts * program_->plan->buffer_chunks(rank, buffer);
      for (uint32_t cell = first; cell < first + cells; ++cell)
        visit(state_->memory[map], state_->memory[map][cell], buffer, (cell - first) / program_->parts);
    }
}

void RaceSearch::let_user_write(int rank) {
  each_user_cell(rank, [&](Accesses& memory, Accesses::Cell& cell, Buffer, uint32_t) {
    memory.filter_readers(cell, [](const Access&) { return true; });
    cell.write = {actors_.user(rank), call_ + 1, {}};
  });
}

void RaceSearch::end_call() {
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

Finding find_race(std::span<const Scheduled> plans, std::span<const uint32_t> calls) {
  std::vector<const Program*> programs;
  programs.reserve(plans.size());
  for (const Scheduled& plan : plans) programs.push_back(plan.program);
  return RaceSearch(plans, std::move(programs)).run(calls);
}

}  // namespace narrowcast::plan::verify
