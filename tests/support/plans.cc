#include "support/plans.h"

#include <algorithm>

namespace narrowcast::plan::verify::testing {

Plan empty_plan(Operation operation, int ranks, uint32_t chunks, uint32_t groups) {
  Plan plan;
  plan.operation = operation;
  plan.chunks = chunks;
  plan.ranks.resize(static_cast<size_t>(ranks));
  for (Rank& rank : plan.ranks) rank.groups.resize(groups);
  if (operation == Operation::all_to_all) plan.in_place = InPlace::no;
  return plan;
}

static uint32_t add_channel(Plan& plan, ChannelKind kind, int from, int to) {
  Channel& channel = plan.channels.emplace_back();
  channel.kind = kind;
  channel.from = from;
  channel.to = to;
  return static_cast<uint32_t>(plan.channels.size() - 1);
}
uint32_t add_ring(Plan& plan, int from, int to, uint32_t depth) {
  const uint32_t ring = add_channel(plan, ChannelKind::ring, from, to);
  plan.channels[ring].depth = depth;
  return ring;
}
uint32_t add_memory(Plan& plan, int from, int to, uint32_t initial) {
  const uint32_t channel = add_channel(plan, ChannelKind::memory, from, to);
  plan.channels[channel].initial = initial;
  return channel;
}
uint32_t add_port(Plan& plan, int from, int to) { return add_channel(plan, ChannelKind::port, from, to); }
uint32_t add_switch(Plan& plan) {
  const uint32_t channel = add_channel(plan, ChannelKind::multicast, 0, 0);
  for (int rank = 0; rank < plan.rank_count(); ++rank) plan.channels[channel].ranks.push_back(rank);
  return channel;
}
void add(Plan& plan, int rank, Step step, uint32_t group) {
  plan.ranks[static_cast<size_t>(rank)].groups[group].steps.push_back(std::move(step));
}

bool has_loop(const Plan& plan) {
  for (const Rank& rank : plan.ranks)
    for (const Group& group : rank.groups)
      for (const Step& step : group.steps)
        if (step.kind == StepKind::loop) return true;
  return false;
}

Plan unrolled(const Plan& plan, uint32_t parts) {
  Plan result = plan;
  result.chunks *= parts;
  const auto part_of = [&](const Step& step, uint32_t first, uint32_t count) {
    Step part = step;
    part.count = step.from.empty() ? 1 : count;
    for (auto* operands : {&part.from, &part.to})
      for (Operand& operand : *operands)
        if (operand.has_location()) operand.chunk = operand.chunk * parts + first;
    return part;
  };
  for (Rank& rank : result.ranks) {
    rank.scratch_chunks *= parts;
    std::vector<std::vector<uint32_t>> last(rank.groups.size());  // of each old step, its last new one
    for (size_t group = 0; group < rank.groups.size(); ++group) {
      std::vector<Step> steps;
      for (const Step& step : rank.groups[group].steps) {
        if (step.kind != StepKind::loop) {
          steps.push_back(part_of(step, 0, step.count * parts));
        } else {
          uint32_t widest = 1;
          for (const Step& inner : step.body) widest = std::max(widest, inner.count);
          steps.push_back(after(sync(), step.after));
          for (uint32_t part = 0; part < widest * parts; ++part) {
            for (const Step& inner : step.body)
              if (part < inner.count * parts) steps.push_back(part_of(inner, part, 1));
            steps.push_back(sync());
          }
        }
        last[group].push_back(static_cast<uint32_t>(steps.size() - 1));
      }
      rank.groups[group].steps = std::move(steps);
    }
    for (Group& group : rank.groups)
      for (Step& step : group.steps)
        for (StepId& id : step.after) id.step = last[id.group][id.step];
  }
  return result;
}

std::vector<Plan> correct_plans() {
  std::vector<Plan> plans;
  for (const int ranks : {2, 3, 4}) {
    plans.push_back(ring_all_gather(ranks, 2));
    plans.push_back(ring_all_reduce(ranks));
    plans.push_back(all_pairs_all_gather(ranks));
    plans.push_back(all_pairs_all_reduce(ranks));
    plans.push_back(two_shot_all_reduce(ranks));
    if (ranks != 3) plans.push_back(recursive_doubling_all_reduce(ranks));
    plans.push_back(tree_broadcast(ranks, 1));
    plans.push_back(memory_all_gather(ranks));
    plans.push_back(memory_all_reduce(ranks));
    plans.push_back(memory_all_reduce(ranks, Threads::independent));
    plans.push_back(port_all_to_all(ranks));
    plans.push_back(packet_all_reduce(ranks));
    plans.push_back(packet_two_shot_all_reduce(ranks));
    plans.push_back(switch_all_reduce(ranks));
    plans.push_back(grouped_reduce_scatter(ranks));
    plans.push_back(barrier_all_gather(ranks));
    plans.push_back(pipelined_all_gather(ranks));
  }
  // Its two copies of the scratch are larger than its input and output.
  plans.push_back(packet_all_reduce(6));
  return plans;
}

}  // namespace narrowcast::plan::verify::testing
