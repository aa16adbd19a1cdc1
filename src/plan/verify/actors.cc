#include "plan/verify/actors.h"

namespace narrowcast::plan::verify {

Actors::Actors(std::span<const FlatPlan* const> flat_plans, const std::vector<std::vector<MemoryMap>>& maps) {
  for (uint32_t plan = 0; plan < flat_plans.size(); ++plan) {
    first_groups_.push_back(static_cast<uint32_t>(actors_.size()));
    for (uint32_t group = 0; group < flat_plans[plan]->groups.size(); ++group)
      actors_.push_back({Kind::group, flat_plans[plan]->groups[group].rank, plan, group, none});
  }
  add_engines(flat_plans);
  first_user_ = static_cast<uint32_t>(actors_.size());
  const int ranks = flat_plans[0]->plan->rank_count();
  for (int rank = 0; rank < ranks; ++rank) actors_.push_back({Kind::user, rank, 0, 0, none});
  visited_.assign(static_cast<size_t>(ranks), 0);

  for (uint32_t plan = 0; plan < flat_plans.size(); ++plan) {
    for (const MemoryMap& map : maps[plan]) mark_sharing(plan, *flat_plans[plan], map);
    if (flat_plans.size() > 1) mark_scratch_users(plan, *flat_plans[plan]);
    mark_signallers(plan, *flat_plans[plan]);
  }
  for (Actor& actor : actors_)
    if (actor.component != none) actor.component = static_cast<uint32_t>(components_++);
}

void Actors::add_engines(std::span<const FlatPlan* const> flat_plans) {
  for (uint32_t plan = 0; plan < flat_plans.size(); ++plan)
    for (const FlatStep& step : flat_plans[plan]->steps)
      for (const auto* operands : {&step.step->from, &step.step->to})
        for (const Operand& operand : *operands) {
          if (operand.place != Place::remote ||
              flat_plans[plan]->plan->channels[operand.channel].kind != ChannelKind::port)
            continue;
          if (engines_.emplace(key(plan, step.group, operand.channel), static_cast<uint32_t>(actors_.size())).second)
            actors_.push_back({Kind::engine, flat_plans[plan]->rank_of(step), plan, step.group, none});
        }
}

// Marks actors that share a chunk of which at least one access is a write.
void Actors::mark_sharing(uint32_t plan, const FlatPlan& flat_plan, const MemoryMap& map) {
  struct Use {
    uint32_t first = none;  // actor
    bool is_shared = false, is_written = false;
  };
  std::vector<Use> uses(map.cells());
  const auto each_cell = [&](auto visit) {
    for (const FlatStep& step : flat_plan.steps)
      each_access(*this, plan, step, [&](uint32_t actor, const Operand& operand, bool is_write) {
        each_range(flat_plan, map, step, operand, [&](int rank, uint32_t first) {
          spend(uint64_t{4} * step.cells);
          const bool is_foreign =
              operand.buffer != Buffer::scratch && (actors_[actor].kind != Kind::group || actors_[actor].rank != rank);
          for (uint32_t cell = first; cell < first + step.cells; ++cell)
            visit(uses[cell], actor, is_write, is_foreign, rank);
        });
      });
  };
  each_cell([&](Use& use, uint32_t actor, bool is_write, bool is_foreign, int rank) {
    use.is_shared |= use.first != none && use.first != actor;
    use.first = actor;
    use.is_written |= is_write;
    if (!is_foreign) return;
    // The user of the rank can write the chunk.
    use.is_shared = use.is_written = true;
    visited_[static_cast<size_t>(rank)] = 1;
    need(user(rank));
  });
  each_cell([&](const Use& use, uint32_t actor, bool, bool, int) {
    if (use.is_shared && use.is_written) need(actor);
  });
}

// Scratch chunks of different plans can overlap in any way.
void Actors::mark_scratch_users(uint32_t plan, const FlatPlan& flat_plan) {
  for (const FlatStep& step : flat_plan.steps)
    each_access(*this, plan, step, [&](uint32_t actor, const Operand& operand, bool) {
      if (operand.buffer == Buffer::scratch) need(actor);
    });
}

// Which signals a wait sees depends on the order of the groups that send them.
void Actors::mark_signallers(uint32_t plan, const FlatPlan& flat_plan) {
  for (const FlatChannel& channel : flat_plan.channels)
    if (channel.signallers.size() > 1)
      for (const uint32_t group_index : channel.signallers) need(group(plan, group_index));
}

}  // namespace narrowcast::plan::verify
