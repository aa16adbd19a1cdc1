// The actors that access memory, and which of them need an entry in vector clocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "plan/verify/flat_plan.h"

namespace narrowcast::plan::verify {

class Actors {
 public:
  enum class Kind : uint8_t { group, engine, user };
  struct Actor {
    Kind kind;
    int rank;
    uint32_t group;  // of an engine: the group that uses it; none for users
    uint32_t component = none;
  };

  // The first actors are the groups, by their index. maps: those of memory_maps().
  Actors(const FlatPlan& flat_plan, const std::vector<MemoryMap>& maps);

  size_t count() const { return actors_.size(); }
  size_t components() const { return components_; }
  const Actor& operator[](uint32_t actor) const { return actors_[actor]; }

  // The copy engine that executes the accesses of the group through a port; none for other channels.
  uint32_t engine(uint32_t group, uint32_t channel) const {
    if (engines_.empty()) return none;
    const auto found = engines_.find(key(group, channel));
    return found == engines_.end() ? none : found->second;
  }
  uint32_t user(int rank) const { return first_user_ + static_cast<uint32_t>(rank); }
  // Whether an actor other than the rank's groups accesses its input or output.
  bool is_visited(int rank) const { return visited_[static_cast<size_t>(rank)]; }

 private:
  static uint64_t key(uint32_t group, uint32_t channel) { return uint64_t{group} << 32 | channel; }
  void add_engines(const FlatPlan& flat_plan);
  void mark_sharing(const FlatPlan& flat_plan, const MemoryMap& map);
  void mark_signallers(const FlatPlan& flat_plan);
  void need(uint32_t actor) { actors_[actor].component = 0; }

  std::vector<Actor> actors_;
  uint32_t first_user_ = 0;
  std::unordered_map<uint64_t, uint32_t> engines_;
  std::vector<uint8_t> visited_;
  size_t components_ = 0;
};

// Calls visit(actor, operand, is_write) for each location operand of the step. If a source is behind a port, its copy
// engine reads it; otherwise the engines of the destinations behind ports read it, and the group reads it for the
// others.
template <typename Visit>
void each_access(const Actors& actors, const FlatStep& step, Visit visit) {
  const auto engine_of = [&](const Operand& operand) {
    return operand.place == Place::remote ? actors.engine(step.group, operand.channel) : none;
  };
  uint32_t mover = none;  // the engine that a source determines
  for (const Operand& from : step.step->from)
    if (mover == none) mover = engine_of(from);
  const auto writer_of = [&](const Operand& to) {
    const uint32_t engine = engine_of(to);
    return engine != none ? engine : mover != none ? mover : step.group;
  };
  // Steps can have very many destinations, but few readers.
  std::vector<uint32_t> readers;
  for (const Operand& to : step.step->to)
    if (const uint32_t reader = writer_of(to); std::ranges::find(readers, reader) == readers.end())
      readers.push_back(reader);
  for (const Operand& from : step.step->from)
    if (from.has_location())
      for (const uint32_t reader : readers) visit(reader, from, false);
  for (const Operand& to : step.step->to)
    if (to.has_location()) visit(writer_of(to), to, true);
}

}  // namespace narrowcast::plan::verify
