#include "plan/verify/races.h"

#include <unordered_map>
#include <utility>

#include "plan/verify/accesses.h"
#include "plan/verify/knowledge.h"
#include "plan/verify/race_report.h"

namespace narrowcast::plan::verify {

namespace {

class RaceSearch {
 public:
  explicit RaceSearch(std::span<const Scheduled> plans) : plans_(plans), knowledge_(plans), report_(knowledge_) {
    for (uint32_t plan = 0; plan < plans.size(); ++plan) {
      std::vector<Accesses>& memory = memory_.emplace_back();
      for (const MemoryMap& map : knowledge_.maps(plan))
        memory.emplace_back(map.cells() * size_t{plans[plan].program->plan->scratch_copies});
    }
    scratch_log_.resize(plans[0].program->plan->ranks.size());
  }

  Finding run(std::span<const uint32_t> calls) {
    for (uint32_t call = 0; call < calls.size() && !finding_.found(); ++call) run_call(calls[call], call);
    return std::move(finding_);
  }

 private:
  // The last accesses of an actor to the scratch of a rank.
  struct Logged {
    Access read, write;
  };

  void run_call(uint32_t plan, uint32_t call) {
    knowledge_.begin_call(plan, call);
    const Program& program = knowledge_.program();
    const int ranks = program.plan->rank_count();
    for (int rank = 0; rank < ranks; ++rank)
      if (knowledge_.actors().is_visited(rank)) let_user_write(rank);
    for (const uint32_t flat : plans_[plan].order) {
      const FlatStep& step = program.steps[flat];
      knowledge_.begin(flat);
      if (step.step->kind == StepKind::barrier) continue;
      each_access(knowledge_.actors(), plan, step, [&](uint32_t actor, const Operand& operand, bool is_write) {
        if (!finding_.found()) access(flat, step, actor, operand, is_write);
      });
      if (finding_.found()) return;
      knowledge_.finish(flat);
    }
    knowledge_.end_call();
    for (int rank = 0; rank < ranks && !finding_.found(); ++rank)
      if (knowledge_.actors().is_visited(rank)) check_user(rank);
  }

  template <typename Visit>
  void each_user_cell(int rank, Visit visit) {
    const Program& program = knowledge_.program();
    const std::vector<MemoryMap>& maps = knowledge_.maps(knowledge_.plan());
    std::vector<Accesses>& memory = memory_[knowledge_.plan()];
    for (size_t map = 0; map < maps.size(); ++map)
      for (const Buffer buffer : {Buffer::input, Buffer::output}) {
        const uint32_t first = maps[map].base(rank, buffer);
        const uint32_t cells = program.parts * program.plan->buffer_chunks(rank, buffer);
        for (uint32_t cell = first; cell < first + cells; ++cell)
          visit(memory[map], memory[map][cell], buffer, (cell - first) / program.parts);
      }
  }

  void let_user_write(int rank) {
    each_user_cell(rank, [&](Accesses& memory, Accesses::Cell& cell, Buffer, uint32_t) {
      memory.filter_readers(cell, [](const Access&) { return true; });
      cell.write = knowledge_.user_access(rank);
    });
  }

  void check_user(int rank) {
    const Viewer user = knowledge_.user(rank);
    each_user_cell(rank, [&](Accesses& memory, Accesses::Cell& cell, Buffer buffer, uint32_t chunk) {
      if (finding_.found()) return;
      const Access* unordered = nullptr;
      bool is_write = false;
      if (cell.write.actor != none && !knowledge_.is_ordered(cell.write, false, user)) {
        unordered = &cell.write;
        is_write = true;
      } else {
        unordered =
            memory.find_reader(cell, [&](const Access& access) { return !knowledge_.is_ordered(access, true, user); });
      }
      if (unordered != nullptr) finding_ = report_.user_race(rank, buffer, chunk, *unordered, is_write);
    });
  }

  void access(uint32_t flat, const FlatStep& step, uint32_t actor, const Operand& operand, bool is_write) {
    const uint32_t plan = knowledge_.plan();
    const Viewer viewer = knowledge_.viewer(step, actor, is_write);
    const bool is_scratch = operand.buffer == Buffer::scratch;
    const size_t offset = is_scratch ? knowledge_.scratch_offset() : 0;
    // Scratch is the same memory in place and out of place.
    const size_t map_count = is_scratch ? 1 : knowledge_.maps(plan).size();
    for (size_t map = 0; map < map_count; ++map)
      each_range(knowledge_.program(), knowledge_.maps(plan)[map], step, operand, [&](int rank, uint32_t first) {
        const Access access{viewer.actor, viewer.epoch, {first, step.cells, operand.packets}};
        Accesses& memory = memory_[plan][map];
        for (uint32_t cell = first; cell < first + step.cells && !finding_.found(); ++cell) {
          if (is_write)
            write(memory, cell, memory[cell + offset], access, viewer, flat, operand);
          else
            read(memory, cell, memory[cell + offset], access, viewer, flat, operand);
        }
        if (is_scratch && memory_.size() > 1 && !finding_.found())
          log_scratch(rank, access, viewer, is_write, flat, operand);
      });
    if (is_write && operand.packets && !finding_.found()) knowledge_.write_packets(flat, actor, operand);
  }

  void read(Accesses& memory, uint32_t index, Accesses::Cell& cell, const Access& access, const Viewer& viewer,
            uint32_t flat, const Operand& operand) {
    const bool has_arrived = operand.packets && knowledge_.has_packets(index);
    if (!has_arrived && cell.write.actor != none && !knowledge_.is_ordered(cell.write, false, viewer, access.shape))
      return report_race(flat, operand, false, cell.write, true, viewer);
    memory.filter_readers(cell, [&](const Access& earlier) {
      return (earlier.actor == access.actor && earlier.shape == access.shape) ||
             knowledge_.is_ordered(earlier, true, viewer);
    });
    memory.add_reader(cell, access);
  }

  void write(Accesses& memory, uint32_t index, Accesses::Cell& cell, const Access& access, const Viewer& viewer,
             uint32_t flat, const Operand& operand) {
    if (operand.packets && knowledge_.has_packets(index)) {
      finding_ = report_.second_packets(flat, operand, cell.write);
      return;
    }
    const Access* reader = memory.find_reader(cell, [&](const Access& earlier) {
      if (knowledge_.is_ordered(earlier, true, viewer, access.shape)) return false;
      return !knowledge_.program().has_packets ||
             !knowledge_.derives_from(flat, index - access.shape.first, earlier, index);
    });
    if (reader != nullptr) return report_race(flat, operand, true, *reader, false, viewer);
    // A reader that precedes came after the last write.
    if (cell.readers == none && cell.write.actor != none &&
        !knowledge_.is_ordered(cell.write, false, viewer, access.shape))
      return report_race(flat, operand, true, cell.write, true, viewer);
    memory.filter_readers(cell, [](const Access&) { return true; });
    cell.write = access;
  }

  // Other plans divide the scratch differently: each access conflicts with all of theirs.
  void log_scratch(int rank, const Access& access, const Viewer& viewer, bool is_write, uint32_t flat,
                   const Operand& operand) {
    std::unordered_map<uint32_t, Logged>& log = scratch_log_[static_cast<size_t>(rank)];
    if (is_write)
      for (const auto& [actor, logged] : log) {
        if (knowledge_.actors()[actor].plan == knowledge_.plan()) continue;
        if (logged.read.actor != none && !knowledge_.is_ordered(logged.read, true, viewer))
          return report_race(flat, operand, true, logged.read, false, viewer);
        if (logged.write.actor != none && !knowledge_.is_ordered(logged.write, false, viewer))
          return report_race(flat, operand, true, logged.write, true, viewer);
      }
    Logged& logged = log[access.actor];
    (is_write ? logged.write : logged.read) = access;
  }

  void report_race(uint32_t flat, const Operand& operand, bool is_write, const Access& earlier, bool earlier_is_write,
                   const Viewer& viewer) {
    finding_ = report_.race(flat, operand, is_write, earlier, earlier_is_write, viewer);
  }

  const std::span<const Scheduled> plans_;
  Knowledge knowledge_;
  const RaceReport report_;
  std::vector<std::vector<Accesses>> memory_;                      // of each plan and map
  std::vector<std::unordered_map<uint32_t, Logged>> scratch_log_;  // by rank and actor; if there are several plans
  Finding finding_;
};

}  // namespace

Finding find_race(std::span<const Scheduled> plans, std::span<const uint32_t> calls) {
  return RaceSearch(plans).run(calls);
}

}  // namespace narrowcast::plan::verify
