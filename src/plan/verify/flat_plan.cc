#include "plan/verify/flat_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "plan/budget.h"
#include "plan/steps.h"

namespace narrowcast::plan::verify {

namespace {

constexpr uint32_t max_parts = 16;

bool has_message(const Step& step) {
  const auto is_message = [](const Operand& operand) { return operand.place == Place::message; };
  return std::any_of(step.from.begin(), step.from.end(), is_message) ||
         std::any_of(step.to.begin(), step.to.end(), is_message);
}

// The number of flat steps of a step outside loops.
uint32_t pieces_of(const Step& step, bool split) {
  return split && step.count > 1 && has_message(step) ? step.count : 1;
}

// Enough iterations per chunk to exhaust the initial credits of semaphores and rings.
uint32_t parts_for(const Plan& plan, const std::vector<Step>& body) {
  uint32_t parts = 2;
  for (const Step& step : body) {
    for (const uint32_t channel : step.channels)
      parts = std::max(parts, std::min(plan.channels[channel].initial, max_parts) + 2);
    for (const auto* operands : {&step.from, &step.to})
      for (const Operand& operand : *operands)
        if (operand.place == Place::message)
          parts = std::max(parts, std::min(plan.channels[operand.channel].depth, max_parts) + 2);
  }
  return std::min(parts, max_parts);
}

uint32_t parts_for(const Plan& plan) {
  uint32_t parts = 1;
  for (const Rank& rank : plan.ranks)
    for (const Group& group : rank.groups)
      for (const Step& step : group.steps)
        if (step.kind == StepKind::loop) parts = std::max(parts, parts_for(plan, step.body));
  return parts;
}

class Flattener {
 public:
  Flattener(const Plan& plan, bool split) {
    flat_plan_.plan = &plan;
    flat_plan_.split = split;
    flat_plan_.parts = parts_for(plan);
    flat_plan_.channels.resize(plan.channels.size());
    flat_plan_.steps.reserve(flat_steps(plan, split));
  }

  FlatPlan run() {
    for (int rank = 0; rank < flat_plan_.plan->rank_count(); ++rank) add_rank(rank);
    flat_plan_.rank_groups.push_back(static_cast<uint32_t>(flat_plan_.groups.size()));
    for (FlatChannel& channel : flat_plan_.channels)
      for (auto* groups : {&channel.signallers, &channel.waiters})
        groups->erase(std::unique(groups->begin(), groups->end()), groups->end());
    return std::move(flat_plan_);
  }

 private:
  uint32_t group() const { return static_cast<uint32_t>(flat_plan_.groups.size() - 1); }

  void add_rank(int rank) {
    const Rank& source = flat_plan_.plan->ranks[static_cast<size_t>(rank)];
    const auto first_group = static_cast<uint32_t>(flat_plan_.groups.size());
    flat_plan_.rank_groups.push_back(first_group);
    flat_plan_.rank_barriers.push_back(static_cast<uint32_t>(flat_plan_.barriers.size()));
    for (const std::vector<uint32_t>& barrier : source.barriers) {
      flat_plan_.barriers.emplace_back(barrier);
      for (uint32_t& member : flat_plan_.barriers.back()) member += first_group;
    }
    for (uint32_t i = 0; i < source.groups.size(); ++i) {
      const auto begin = static_cast<uint32_t>(flat_plan_.steps.size());
      flat_plan_.groups.push_back({rank, i, begin, begin, static_cast<uint32_t>(flat_plan_.step_ends.size())});
      const std::vector<Step>& steps = source.groups[i].steps;
      for (uint32_t index = 0; index < steps.size(); ++index) {
        add_step(steps[index], index);
        flat_plan_.step_ends.push_back(static_cast<uint32_t>(flat_plan_.steps.size()));
      }
      flat_plan_.groups.back().end = static_cast<uint32_t>(flat_plan_.steps.size());
    }
  }

  void add_step(const Step& step, uint32_t index) {
    const uint32_t parts = flat_plan_.parts;
    if (step.kind == StepKind::loop) {
      const uint32_t iterations = parts * widest(step.body);
      for (uint32_t part = 0; part < iterations; ++part) {
        spend(step.body.size());
        add(step, index, -1, part, 0);
        for (size_t i = 0; i < step.body.size(); ++i)
          if (part < parts * step.body[i].count) add(step.body[i], index, static_cast<int32_t>(i), part, 1);
      }
      add(step, index, -1, 0, 0);
      return;
    }
    const uint32_t pieces = pieces_of(step, flat_plan_.split);
    const uint32_t cells = parts * (step.count / pieces);
    for (uint32_t piece = 0; piece < pieces; ++piece) add(step, index, -1, piece * cells, cells);
  }

  void add(const Step& step, uint32_t index, int32_t body, uint32_t first, uint32_t cells) {
    spend(step.from.size() + step.to.size() + step.channels.size());
    flat_plan_.memory.grow(step.channels.size() * sizeof(uint32_t));
    flat_plan_.steps.push_back({&step, group(), index, body, first, cells});
    flat_plan_.has_relaxed |= step.relaxed;
    for (const auto* operands : {&step.from, &step.to})
      for (const Operand& operand : *operands) {
        flat_plan_.has_packets |= operand.packets;
        if (operand.place != Place::message) continue;
        FlatChannel& channel = flat_plan_.channels[operand.channel];
        flat_plan_.has_packets |= flat_plan_.plan->channels[operand.channel].packets;
        flat_plan_.has_wide_messages |= step.count > 1 && body < 0;
        if (operands == &step.to) {
          channel.sender = group();
          ++channel.messages;
        } else {
          channel.receiver = group();
        }
      }
    for (const uint32_t index_of_channel : step.channels) {
      FlatChannel& channel = flat_plan_.channels[index_of_channel];
      if (step.kind == StepKind::signal) {
        channel.signallers.push_back(group());
        ++channel.signals;
      } else if (step.kind == StepKind::wait) {
        channel.waiters.push_back(group());
      }
    }
  }

  FlatPlan flat_plan_;
};

std::string chunks_text(uint32_t first, uint32_t count) {
  return count == 1 ? "chunk " + std::to_string(first)
                    : "chunks " + std::to_string(first) + " to " + std::to_string(uint64_t{first} + count - 1);
}

std::string join(std::vector<std::string> texts) {
  constexpr size_t max_texts = 4;
  if (texts.size() > max_texts) {
    const size_t more = texts.size() - (max_texts - 1);
    texts.resize(max_texts - 1);
    texts.push_back(std::to_string(more) + " more");
  }
  std::string joined;
  for (size_t i = 0; i < texts.size(); ++i) joined += (i == 0 ? "" : i + 1 == texts.size() ? " and " : ", ") + texts[i];
  return joined;
}

}  // namespace

Where FlatPlan::where(uint32_t flat) const {
  const FlatStep& step = steps[flat];
  Where where;
  where.rank = rank_of(step);
  where.group = static_cast<int>(groups[step.group].index);
  where.step = static_cast<int>(step.index);
  where.body = step.body;
  where.origin = step.step->origin;
  return where;
}

uint32_t widest(const std::vector<Step>& body) {
  uint32_t count = 0;
  for (const Step& step : body) count = std::max(count, step.count);
  return count;
}

uint64_t flat_steps(const Plan& plan, bool split) {
  const uint32_t parts = parts_for(plan);
  uint64_t total = 0;
  for (const Rank& rank : plan.ranks)
    for (const Group& group : rank.groups)
      for (const Step& step : group.steps) {
        if (step.kind != StepKind::loop) {
          total += pieces_of(step, split);
          continue;
        }
        total += uint64_t{parts} * widest(step.body) + 1;
        for (const Step& inner : step.body) total += uint64_t{parts} * inner.count;
      }
  return total;
}

uint64_t memory_cells(const Plan& plan) {
  uint64_t chunks = 0;
  for (int rank = 0; rank < plan.rank_count(); ++rank)
    for (const Buffer buffer : {Buffer::input, Buffer::output, Buffer::scratch})
      chunks += plan.buffer_chunks(rank, buffer);
  return chunks * parts_for(plan) * plan.scratch_copies;
}

FlatPlan flatten(const Plan& plan, bool split) { return Flattener(plan, split).run(); }

MemoryMap::MemoryMap(const Plan& plan, uint32_t parts, bool in_place)
    : suffix_(in_place && plan.in_place == InPlace::either ? ", in a call in place" : ""), bases_(plan.ranks.size()) {
  for (int rank = 0; rank < plan.rank_count(); ++rank) {
    std::array<uint32_t, 3>& bases = bases_[static_cast<size_t>(rank)];
    const auto take = [&](Buffer buffer) {
      bases[static_cast<size_t>(buffer)] = cells_;
      cells_ += parts * plan.buffer_chunks(rank, buffer);
    };
    const uint32_t input = plan.input_chunks(rank), output = plan.output_chunks(rank);
    if (in_place && input != 0 && output != 0) {
      const Buffer large = input > output ? Buffer::input : Buffer::output;
      const Buffer small = input > output ? Buffer::output : Buffer::input;
      const uint32_t piece = input == output ? 0 : static_cast<uint32_t>(rank) * std::min(input, output);
      take(large);
      bases[static_cast<size_t>(small)] = bases[static_cast<size_t>(large)] + parts * piece;
    } else {
      take(Buffer::input);
      take(Buffer::output);
    }
    take(Buffer::scratch);
  }
}

std::vector<MemoryMap> memory_maps(const Plan& plan, uint32_t parts) {
  const bool may_overlap = operation::describe(plan.operation).overlap == operation::Overlap::IN_PLACE;
  std::vector<MemoryMap> maps;
  if (plan.in_place != InPlace::yes) maps.emplace_back(plan, parts, false);
  if (plan.in_place == InPlace::yes || (plan.in_place == InPlace::either && may_overlap))
    maps.emplace_back(plan, parts, true);
  return maps;
}

std::string describe(const Plan& plan, int rank, uint32_t index) {
  const Channel& channel = plan.channels[index];
  if (channel.from == channel.to) return "semaphore " + std::to_string(index);
  return "rank " + std::to_string(channel.from == rank ? channel.to : channel.from) +
         (channel.kind == ChannelKind::ring ? " (ring " : " (channel ") + std::to_string(index) + ")";
}

std::string describe(const Plan& plan, int rank, const Operand& operand, uint32_t count) {
  std::string range = std::string(buffer_names[static_cast<size_t>(operand.buffer)]) + " " +
                      chunks_text(operand.chunk, count) + (operand.packets ? " (packets)" : "");
  switch (operand.place) {
    case Place::message:
      return std::string(plan.channels[operand.channel].from == rank ? "a message to " : "a message from ") +
             describe(plan, rank, operand.channel);
    case Place::remote: {
      const Channel& channel = plan.channels[operand.channel];
      return range + " of rank " + std::to_string(channel.from == rank ? channel.to : channel.from);
    }
    case Place::everywhere: return range + " on all ranks of channel " + std::to_string(operand.channel);
    default: return range;
  }
}

std::string describe(const FlatPlan& flat_plan, uint32_t flat) {
  const FlatStep& flat_step = flat_plan.steps[flat];
  const Step& step = *flat_step.step;
  const int rank = flat_plan.rank_of(flat_step);
  const auto list = [&](const std::vector<Operand>& operands) {
    std::vector<std::string> texts;
    texts.reserve(operands.size());
    for (const Operand& operand : operands) texts.push_back(describe(*flat_plan.plan, rank, operand, step.count));
    return join(std::move(texts));
  };
  std::string text = row_of(step.kind).name;
  if (!step.from.empty()) text += " of " + list(step.from);
  if (!step.to.empty()) text += " to " + list(step.to);
  if (step.relaxed) text = "relaxed " + text;
  if (!step.channels.empty()) {
    std::vector<std::string> texts;
    texts.reserve(step.channels.size());
    for (const uint32_t channel : step.channels) texts.push_back(describe(*flat_plan.plan, rank, channel));
    text += (step.kind == StepKind::wait ? " for " : " to ") + join(std::move(texts));
  }
  if (step.kind == StepKind::barrier) text += " " + std::to_string(step.barrier);
  if (flat_plan.split && flat_step.cells != flat_plan.parts * step.count && flat_step.body < 0 &&
      !flat_plan.is_boundary(flat_step))
    text +=
        " (part " + std::to_string(flat_step.first / flat_step.cells + 1) + " of " + std::to_string(step.count) + ")";
  if (flat_step.body >= 0) text += " (iteration " + std::to_string(flat_step.first) + ")";
  return text;
}

}  // namespace narrowcast::plan::verify
