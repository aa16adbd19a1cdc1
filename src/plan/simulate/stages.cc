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

class StageSearch {
 public:
  StageSearch(const Plan& plan, const Orbits* orbits) : plan_(plan), orbits_(orbits), sent_in_(plan.channels.size()) {
    for (const Rank& rank : plan.ranks) {
      stages_.emplace_back();
      for (const Group& group : rank.groups) stages_.back().emplace_back(group.steps.size());
    }
  }

  // Stages only grow, until all are what those before them require.
  Stages run() && {
    do {
      changes_ = false;
      sent_.assign(plan_.channels.size(), 0);
      received_.assign(plan_.channels.size(), 0);
      for (size_t rank = 0; rank < plan_.ranks.size(); ++rank) {
        written_in_.clear();
        for (size_t group = 0; group < plan_.ranks[rank].groups.size(); ++group) visit(rank, group);
      }
    } while (changes_);
    return std::move(stages_);
  }

 private:
  void visit(size_t rank, size_t group) {
    const std::vector<Step>& steps = plan_.ranks[rank].groups[group].steps;
    uint32_t synchronized = 0;  // the stage of the syncs before
    for (size_t i = 0; i < steps.size(); ++i) {
      uint32_t& stage = stages_[rank][group][i];
      uint32_t found = std::max(stage, synchronized);
      for (const StepId& id : steps[i].after) found = std::max(found, stages_[rank][id.group][id.step]);
      for (const Operand& operand : steps[i].from) found = std::max(found, least_stage(operand, steps[i].count));
      for (const Operand& operand : steps[i].to) write(operand, steps[i].count, found);
      if (steps[i].kind == StepKind::sync) synchronized = found;
      changes_ |= found != stage;
      stage = found;
    }
  }

  uint32_t least_stage(const Operand& source, uint32_t count) {
    uint32_t stage = 0;
    if (source.place == Place::message) {
      const uint32_t ring = ring_of(source);
      const size_t number = received_[ring]++;
      return number < sent_in_[ring].size() ? sent_in_[ring][number] + 1 : 0;
    }
    for (uint32_t chunk = source.chunk; chunk < source.chunk + count; ++chunk)
      if (const auto found = written_in_.find({source.buffer, chunk}); found != written_in_.end())
        stage = std::max(stage, found->second);
    return stage;
  }

  void write(const Operand& destination, uint32_t count, uint32_t stage) {
    if (destination.place == Place::message) {
      std::vector<uint32_t>& sent_in = sent_in_[ring_of(destination)];
      const size_t number = sent_[ring_of(destination)]++;
      if (number == sent_in.size()) {
        sent_in.push_back(0);
        changes_ = true;  // its receiver may have been visited before
      }
      sent_in[number] = stage;
      return;
    }
    for (uint32_t chunk = destination.chunk; chunk < destination.chunk + count; ++chunk)
      written_in_[{destination.buffer, chunk}] = stage;
  }

  uint32_t ring_of(const Operand& operand) const {
    return orbits_ != nullptr ? orbits_->channels[operand.channel] : operand.channel;
  }

  const Plan& plan_;
  const Orbits* orbits_;
  Stages stages_;
  std::vector<std::vector<uint32_t>> sent_in_;                  // by channel and message, the stage of its sender
  std::vector<size_t> sent_, received_;                         // by channel, messages in this round
  std::map<std::pair<Buffer, uint32_t>, uint32_t> written_in_;  // by chunk of a rank, the stage of its last writer
  bool changes_ = false;
};

}  // namespace

Stages stages_of(const Plan& plan, const Orbits* orbits) {
  if (!can_have_stages(plan)) return {};
  return StageSearch(plan, orbits).run();
}

}  // namespace narrowcast::plan::simulate
