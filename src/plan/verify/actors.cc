#include "plan/verify/actors.h"

namespace narrowcast::plan::verify {

Actors::Actors(const FlatPlan& flat_plan, const std::vector<MemoryMap>& maps) {
  for (uint32_t group = 0; group < flat_plan.groups.size(); ++group)
    actors_.push_back({Kind::group, flat_plan.groups[group].rank, group});
  add_engines(flat_plan);
  first_user_ = static_cast<uint32_t>(actors_.size());
  const int ranks = flat_plan.plan->rank_count();
  for (int rank = 0; rank < ranks; ++rank) actors_.push_back({Kind::user, rank, none});
  visited_.assign(static_cast<size_t>(ranks), 0);

  for (const MemoryMap& map : maps) mark_sharing(flat_plan, map);
  mark_signallers(flat_plan);
  for (Actor& actor : actors_)
    if (actor.component != none) actor.component = static_cast<uint32_t>(components_++);
}

void Actors::add_engines(const FlatPlan& flat_plan) {
  for (const FlatStep& step : flat_plan.steps)
    for (const auto* operands : {&step.step->from, &step.step->to})
      for (const Operand& operand : *operands) {
        if (operand.place != Place::remote || flat_plan.plan->channels[operand.channel].kind != ChannelKind::port)
          continue;
        if (engines_.emplace(key(step.group, operand.channel), static_cast<uint32_t>(actors_.size())).second)
          actors_.push_back({Kind::engine, flat_plan.rank_of(step), step.group});
      }
}

// Marks actors that share a chunk of which at least one access is a write.
void Actors::mark_sharing(const FlatPlan& flat_plan, const MemoryMap& map) {
  struct Use {
    uint32_t first = none;  // actor
    bool is_shared = false, is_written = false;
  };
  std::vector<Use> uses(map.cells());
  const auto each_cell = [&](auto visit) {
    for (const FlatStep& step : flat_plan.steps)
      each_access(*this, step, [&](uint32_t actor, const Operand& operand, bool is_write) {
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

// Which signals a wait sees depends on the order of the groups that send them.
void Actors::mark_signallers(const FlatPlan& flat_plan) {
  for (const FlatChannel& channel : flat_plan.channels)
    if (channel.signallers.size() > 1)
      for (const uint32_t group : channel.signallers) need(group);
}

}  // namespace narrowcast::plan::verify
