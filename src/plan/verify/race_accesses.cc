// Accesses of a step, and whether they are ordered after earlier ones.
#include <set>
#include <tuple>
#include <utility>

#include "plan/verify/race_search.h"

namespace narrowcast::plan::verify {

void RaceSearch::access(uint32_t flat, const FlatStep& step, uint32_t actor, const Clock& clock, const Operand& operand,
                        bool is_write) {
  const GroupState& group = state_.groups[step.group];
  const bool is_engine = actors_[actor].kind == Actors::Kind::engine;
  uint32_t epoch = epoch_before(step.group);
  if (is_engine) epoch = static_cast<uint32_t>(2 * (engines_[actor].steps.size() - 1));
  const Viewer viewer{actor, epoch + (is_write ? 2 : 1), is_engine ? &engines_[actor].seen : &clock, group.synced};
  uint32_t stamp = none;
  if (is_write && operand.packets) {
    stamp = static_cast<uint32_t>(packets_.size());
    memory_.grow(sizeof(Passed));
    packets_.push_back({is_engine ? engine_stamp(actor) : reads_so_far(step.group), flat, position_of(step, operand)});
  }
  const bool is_scratch = operand.buffer == Buffer::scratch;
  const size_t offset = is_scratch ? scratch_offset() : 0;
  // Scratch is the same memory in place and out of place.
  const size_t map_count = is_scratch ? 1 : maps_.size();
  for (size_t map = 0; map < map_count && !finding_.found(); ++map) {
    each_range(flat_plan_, maps_[map], step, operand, [&](int, uint32_t first) {
      const Access access{viewer.actor, viewer.epoch, {first, step.cells, operand.packets}};
      Accesses& memory = state_.memory[map];
      spend(uint64_t{12} * step.cells);
      for (uint32_t cell = first; cell < first + step.cells && !finding_.found(); ++cell) {
        if (is_write)
          write(memory, cell, memory[cell + offset], access, viewer, stamp, flat, operand);
        else
          read(memory, memory[cell + offset], access, viewer, flat, operand);
      }
    });
    if (finding_.found()) finding_.message += maps_[map].suffix();
  }
}

void RaceSearch::read(Accesses& memory, Accesses::Cell& cell, const Access& access, const Viewer& viewer, uint32_t flat,
                      const Operand& operand) {
  const bool has_arrived = operand.packets && cell.packet_call == call_;
  if (!has_arrived && cell.write.actor != none && !is_ordered(cell.write, false, viewer, access.shape))
    return report_race(flat, operand, false, cell.write, true, viewer);
  memory.filter_readers(cell, [&](const Access& earlier) {
    return (earlier.actor == access.actor && earlier.shape == access.shape) || is_ordered(earlier, true, viewer);
  });
  memory.add_reader(cell, access);
}

void RaceSearch::write(Accesses& memory, uint32_t index, Accesses::Cell& cell, const Access& access,
                       const Viewer& viewer, uint32_t stamp, uint32_t flat, const Operand& operand) {
  const bool overwrites_packets = operand.packets && cell.packet_stamp != none;
  if (overwrites_packets && cell.packet_call == call_) return report_second_packets(flat, operand, cell.write);
  const Access* reader = memory.find_reader(cell, [&](const Access& earlier) {
    if (is_ordered(earlier, true, viewer, access.shape)) return false;
    return !flat_plan_.has_packets || !derives_from(flat, index - access.shape.first, earlier, index);
  });
  if (reader != nullptr) return report_race(flat, operand, true, *reader, false, viewer);
  // A reader that happens before this access came after the last write.
  if (cell.readers == none && cell.write.actor != none && !is_ordered(cell.write, false, viewer, access.shape))
    return report_race(flat, operand, true, cell.write, true, viewer);
  memory.filter_readers(cell, [](const Access&) { return true; });
  cell.write = access;
  cell.packet_stamp = stamp;
  cell.packet_call = stamp != none ? call_ : none;
}

bool RaceSearch::is_ordered(const Access& earlier, bool is_read, const Viewer& viewer, const Shape& shape) const {
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

bool RaceSearch::derives_from(uint32_t flat, uint32_t offset, const Access& read, uint32_t cell) {
  const auto [reader, call] = step_of(read);
  if (call != call_) return false;
  std::vector<std::pair<uint32_t, uint32_t>> pending = {{flat, offset}};
  std::set<std::pair<uint32_t, uint32_t>> seen(pending.begin(), pending.end());
  const auto visit = [&](uint32_t next, uint32_t next_offset) {
    if (seen.emplace(next, next_offset).second) pending.emplace_back(next, next_offset);
  };
  while (!pending.empty()) {
    spend(50);
    std::tie(flat, offset) = pending.back();
    pending.pop_back();
    if (flat == reader && read.shape.first + offset == cell) return true;
    const FlatStep& step = flat_plan_.steps[flat];
    for (const Operand& from : step.step->from) {
      if (!from.packets) continue;
      each_range(flat_plan_, maps_[0], step, from, [&](int, uint32_t first) {
        const uint32_t index = state_.memory[0][first + offset + scratch_offset()].packet_stamp;
        visit(packets_[index].flat, position_of(step, from) + offset - packets_[index].position);
      });
    }
    if (const auto found = received_.find(flat); found != received_.end())
      for (const uint32_t sender : found->second) visit(sender, offset);
  }
  return false;
}

}  // namespace narrowcast::plan::verify
