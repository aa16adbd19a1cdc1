#include <algorithm>
#include <set>
#include <utility>

#include "plan/budget.h"
#include "plan/lower/lower.h"

namespace narrowcast::plan::lower {
namespace {

bool is_local_values(const Operand& operand) { return operand.place == Place::local && !operand.packets; }

bool contains(const std::vector<Operand>& operands, const Operand& operand) {
  return std::ranges::find(operands, operand) != operands.end();
}

bool is_subset(const std::vector<StepId>& part, const std::vector<StepId>& whole) {
  return std::ranges::all_of(part, [&](const StepId& id) { return std::ranges::find(whole, id) != whole.end(); });
}

class Fusion {
 public:
  explicit Fusion(const Plan& plan) : plan_(plan) {}

  Plan run() {
    Plan result = plan_;
    for (Rank& rank : result.ranks) fuse_rank(rank);
    return result;
  }

 private:
  void fuse_rank(Rank& rank) {
    // Steps that others depend on: their values must be visible when they end.
    awaited_.clear();
    for (const Group& group : rank.groups)
      for (const Step& step : group.steps)
        for (const StepId& id : step.after) awaited_.insert({id.group, id.step});
    // New indices, by group and old index.
    std::vector<std::vector<uint32_t>> renumbered(rank.groups.size());
    for (uint32_t i = 0; i < rank.groups.size(); ++i) renumbered[i] = fuse_group(rank.groups[i], i);
    for (Group& group : rank.groups) {
      for (Step& step : group.steps) {
        for (StepId& id : step.after) {
          if (id.group < renumbered.size() && id.step < renumbered[id.group].size())
            id.step = renumbered[id.group][id.step];
        }
      }
    }
  }

  std::vector<uint32_t> fuse_group(Group& group, uint32_t number) {
    std::vector<Step> fused;
    std::vector<uint32_t> renumbered;
    for (uint32_t i = 0; i < group.steps.size(); ++i) {
      Step& step = group.steps[i];
      const bool previous_is_awaited = i > 0 && awaited_.contains({number, i - 1});
      if (fused.empty() || !join(fused.back(), previous_is_awaited, step)) fused.push_back(std::move(step));
      renumbered.push_back(static_cast<uint32_t>(fused.size() - 1));
    }
    group.steps = std::move(fused);
    return renumbered;
  }

  bool join(Step& before, bool before_is_awaited, const Step& step) const {
    if (before.kind != StepKind::copy && before.kind != StepKind::reduce) return false;
    spend(10 + step.after.size() * before.after.size() +
          (step.from.size() + step.to.size()) * (before.from.size() + before.to.size()));
    if (step.count != before.count || !is_subset(step.after, before.after)) return false;
    if (step.kind == StepKind::copy) return join_copy(before, step);
    return step.kind == StepKind::reduce && before.kind == StepKind::reduce && !before_is_awaited &&
           join_reduction(before, step);
  }

  // `before` stores what `step` copies, so it can also store to the destinations of `step`.
  bool join_copy(Step& before, const Step& step) const {
    const Operand& source = step.from[0];
    if (!is_local_values(source) || !contains(before.to, source)) return false;
    for (const Operand& to : step.to) {
      if (conflicts(before.from, to, step.count) || conflicts(before.to, to, step.count)) return false;
    }
    before.to.insert(before.to.end(), step.to.begin(), step.to.end());
    return true;
  }

  // `before` reduces into a place into which `step` reduces further values.
  bool join_reduction(Step& before, const Step& step) const {
    const Operand& sum = step.from[0];
    if (!is_local_values(sum) || before.to != std::vector<Operand>{sum} || !contains(step.to, sum)) return false;
    for (size_t i = 1; i < step.from.size(); ++i)
      if (conflicts({sum}, step.from[i], step.count)) return false;
    for (const Operand& to : step.to)
      if (to != sum && conflicts(before.from, to, step.count)) return false;
    before.from.insert(before.from.end(), step.from.begin() + 1, step.from.end());
    before.to = step.to;
    return true;
  }

  // Whether `operand` may overlap one of `others` in memory, or uses the same channel. Input and output may be the same
  // memory.
  bool conflicts(const std::vector<Operand>& others, const Operand& operand, uint32_t count) const {
    return std::ranges::any_of(others, [&](const Operand& other) {
      if (operand.has_channel() != other.has_channel()) return operand.has_location() && is_to_self(operand, other);
      if (operand.has_channel()) return operand.channel == other.channel;
      if ((operand.buffer == Buffer::scratch) != (other.buffer == Buffer::scratch)) return false;
      if (operand.buffer != other.buffer) return true;
      return operand.chunk < other.chunk + count && other.chunk < operand.chunk + count;
    });
  }

  // Whether the operand with a channel may access memory of its own rank.
  bool is_to_self(const Operand& a, const Operand& b) const {
    const Operand& through = a.has_channel() ? a : b;
    if (through.place == Place::message) return false;
    if (through.place == Place::everywhere || through.channel >= plan_.channels.size()) return true;
    const Channel& channel = plan_.channels[through.channel];
    return channel.from == channel.to;
  }

  const Plan& plan_;
  std::set<std::pair<uint32_t, uint32_t>> awaited_;
};

}  // namespace

Plan fuse(const Plan& plan) { return Fusion(plan).run(); }

}  // namespace narrowcast::plan::lower
