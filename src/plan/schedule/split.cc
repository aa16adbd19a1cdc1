#include "plan/schedule/split.h"

#include <algorithm>
#include <limits>
#include <map>
#include <ranges>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/schedule/awaited.h"
#include "plan/sets.h"
#include "plan/verify/flat_plan.h"

namespace narrowcast::plan::schedule {
namespace {

constexpr uint32_t none = std::numeric_limits<uint32_t>::max();

bool moves(const Step& step) { return step.kind == StepKind::copy || step.kind == StepKind::reduce; }

// The last accesses to a chunk: indices of steps in the order of the rank.
struct Cell {
  uint32_t writer = none;
  std::vector<uint32_t> readers;
};

class RankSplit {
 public:
  // order: the steps that move values, in topological order.
  RankSplit(const Rank& rank, const std::vector<StepId>& order) {
    for (const StepId& id : order) steps_.push_back(rank.groups[id.group].steps[id.step]);
    awaited_.resize(steps_.size());
  }

  // Adds the dependences of the steps for the memory layout `map`.
  void add_conflicts(int rank, const verify::MemoryMap& map) {
    std::map<uint32_t, Cell> cells;
    for (uint32_t i = 0; i < steps_.size(); ++i) {
      const auto each_cell = [&](const std::vector<Operand>& operands, auto visit) {
        for (const Operand& operand : operands)
          for (uint32_t chunk = 0; operand.has_location() && chunk < steps_[i].count; ++chunk)
            visit(cells[map.base(rank, operand.buffer) + operand.chunk + chunk]);
      };
      const auto await = [&](uint32_t other) {
        if (other != none && other != i) awaited_[i].push_back(other);
      };
      each_cell(steps_[i].from, [&](Cell& cell) { await(cell.writer); });
      each_cell(steps_[i].to, [&](Cell& cell) {
        await(cell.writer);
        for (uint32_t reader : cell.readers) await(reader);
      });
      each_cell(steps_[i].from, [&](Cell& cell) { cell.readers.push_back(i); });
      each_cell(steps_[i].to, [&](Cell& cell) { cell = {i, {}}; });
    }
  }

  std::vector<Group> groups() {
    Sets sets(steps_.size());
    std::map<std::pair<uint32_t, bool>, uint32_t> ends;  // of rings: the first step that uses them
    for (uint32_t i = 0; i < steps_.size(); ++i)
      for (const bool sends : {false, true})
        for (const Operand& operand : sends ? steps_[i].to : steps_[i].from)
          if (operand.place == Place::message)
            sets.join(ends.try_emplace({operand.channel, sends}, i).first->second, i);
    std::vector<Group> result;
    std::vector<uint32_t> group_of(steps_.size(), none);  // of the set with this first step
    std::vector<StepId> places;
    for (uint32_t i = 0; i < steps_.size(); ++i) {
      uint32_t& group = group_of[sets.find(i)];
      if (group == none) {
        group = static_cast<uint32_t>(result.size());
        result.emplace_back();
      }
      Step step = steps_[i];
      const auto place_of = [&](uint32_t awaited) { return places[awaited]; };
      step.after = last_of_each_group(std::views::transform(awaited_[i], place_of), group);
      places.push_back({group, static_cast<uint32_t>(result[group].steps.size())});
      result[group].steps.push_back(std::move(step));
    }
    return result;
  }

 private:
  std::vector<Step> steps_;
  std::vector<std::vector<uint32_t>> awaited_;
};

bool can_split(const Plan& plan) {
  const auto is_simple = [](const Operand& operand) {
    return (operand.place == Place::local || operand.place == Place::message) && !operand.packets;
  };
  const auto is_known = [&](const Step& step) {
    return (moves(step) || step.kind == StepKind::sync) && std::ranges::all_of(step.from, is_simple) &&
           std::ranges::all_of(step.to, is_simple);
  };
  return plan.threads == Threads::synchronized && std::ranges::all_of(plan.ranks, [&](const Rank& rank) {
           return std::ranges::all_of(rank.groups,
                                      [&](const Group& group) { return std::ranges::all_of(group.steps, is_known); });
         });
}

}  // namespace

std::optional<Plan> split(const Plan& plan, const simulate::Prediction& prediction) {
  if (!can_split(plan)) return std::nullopt;
  // A step begins after its dependences have ended, so this is also the order of their ends.
  std::vector<std::vector<StepId>> orders(plan.ranks.size());
  for (const simulate::Interval& interval : prediction.timeline)
    if (interval.batch == 0 && moves(plan.ranks[interval.rank].groups[interval.group].steps[interval.step]))
      orders[interval.rank].push_back({interval.group, interval.step});
  const std::vector<verify::MemoryMap> maps = verify::memory_maps(plan, 1);
  Plan result = plan;
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    RankSplit divided(plan.ranks[rank], orders[rank]);
    for (const verify::MemoryMap& map : maps) divided.add_conflicts(static_cast<int>(rank), map);
    result.ranks[rank].groups = divided.groups();
    result.ranks[rank].barriers.clear();
  }
  return result;
}

}  // namespace narrowcast::plan::schedule
