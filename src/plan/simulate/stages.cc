#include "plan/simulate/stages.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

namespace narrowcast::plan::simulate {
namespace {

bool can_have_stages(const Plan& plan) {
  const auto has_stage = [](const Step& step) {
    return step.kind == StepKind::copy || step.kind == StepKind::reduce || step.kind == StepKind::sync;
  };
  return std::ranges::all_of(plan.channels, [](const Channel& one) { return one.kind == ChannelKind::ring; }) &&
         std::ranges::all_of(plan.ranks, [&](const Rank& rank) {
           return std::ranges::all_of(rank.groups,
                                      [&](const Group& group) { return std::ranges::all_of(group.steps, has_stage); });
         });
}

// Visits steps in topological order: each one after earlier steps of its group, its dependences, and the senders of the
// messages that it receives. Conflicting accesses to a chunk are ordered by these, so the last visited writer is the
// last one executed.
class StageSearch {
 public:
  explicit StageSearch(const Plan& plan)
      : plan_(plan), sent_in_(plan.channels.size()), received_(plan.channels.size()) {
    for (const Rank& rank : plan.ranks) {
      written_in_.emplace_back();
      synchronized_.emplace_back(rank.groups.size());
      stages_.emplace_back(rank.groups.size());
    }
  }

  // Empty if steps wait for each other.
  Stages run() && {
    bool is_complete = false, has_progress = true;
    while (!is_complete && has_progress) {
      is_complete = true;
      has_progress = false;
      for (size_t rank = 0; rank < plan_.ranks.size(); ++rank) {
        for (size_t group = 0; group < plan_.ranks[rank].groups.size(); ++group) {
          const std::vector<Step>& steps = plan_.ranks[rank].groups[group].steps;
          std::vector<uint32_t>& stages = stages_[rank][group];
          for (; stages.size() < steps.size() && is_ready(rank, steps[stages.size()]); has_progress = true)
            stages.push_back(visit(rank, group, steps[stages.size()]));
          is_complete = is_complete && stages.size() == steps.size();
        }
      }
    }
    if (!is_complete) return {};
    return std::move(stages_);
  }

 private:
  bool is_ready(size_t rank, const Step& step) const {
    for (const StepId& id : step.after)
      if (stages_[rank][id.group].size() <= id.step) return false;
    std::map<uint32_t, size_t> wanted;  // messages, by ring
    for (const Operand& operand : step.from) {
      if (operand.place != Place::message) continue;
      const uint32_t ring = operand.channel;
      if (received_[ring] + ++wanted[ring] > sent_in_[ring].size()) return false;
    }
    return true;
  }

  uint32_t visit(size_t rank, size_t group, const Step& step) {
    uint32_t& synchronized = synchronized_[rank][group];
    uint32_t stage = synchronized;
    for (const StepId& id : step.after) stage = std::max(stage, stages_[rank][id.group][id.step]);
    for (const Operand& operand : step.from) stage = std::max(stage, least_stage(rank, operand, step.count));
    for (const Operand& operand : step.to) write(rank, operand, step.count, stage);
    if (step.kind == StepKind::sync) synchronized = stage;
    return stage;
  }

  uint32_t least_stage(size_t rank, const Operand& source, uint32_t count) {
    if (source.place == Place::message) {
      const uint32_t ring = source.channel;
      return sent_in_[ring][received_[ring]++] + 1;
    }
    uint32_t stage = 0;
    const auto& written_in = written_in_[rank];
    for (uint32_t chunk = source.chunk; chunk < source.chunk + count; ++chunk)
      if (const auto found = written_in.find({source.buffer, chunk}); found != written_in.end())
        stage = std::max(stage, found->second);
    return stage;
  }

  void write(size_t rank, const Operand& destination, uint32_t count, uint32_t stage) {
    if (destination.place == Place::message) {
      sent_in_[destination.channel].push_back(stage);
      return;
    }
    for (uint32_t chunk = destination.chunk; chunk < destination.chunk + count; ++chunk)
      written_in_[rank][{destination.buffer, chunk}] = stage;
  }

  const Plan& plan_;
  Stages stages_;                                    // of the steps that have been visited
  std::vector<std::vector<uint32_t>> synchronized_;  // by rank and group, the stage of the last sync
  std::vector<std::vector<uint32_t>> sent_in_;       // by channel and message, the stage of its sender
  std::vector<size_t> received_;                     // by channel, messages
  // By rank and chunk, the stage of its last writer.
  std::vector<std::map<std::pair<Buffer, uint32_t>, uint32_t>> written_in_;
};

}  // namespace

Stages stages_of(const Plan& plan) {
  if (!can_have_stages(plan)) return {};
  return StageSearch(plan).run();
}

}  // namespace narrowcast::plan::simulate
