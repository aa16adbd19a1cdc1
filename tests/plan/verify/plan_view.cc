#include "plan/verify/plan_view.h"

#include <algorithm>
#include <set>

namespace narrowcast::plan::verify::testing {

PlanView::PlanView(const Plan& given, bool is_in_place)
    : plan(given), in_place(is_in_place), threads(given.threads == Threads::independent ? 2 : 1) {
  for (int rank = 0; rank < plan.rank_count(); ++rank)
    for (size_t group = 0; group < plan.ranks[static_cast<size_t>(rank)].groups.size(); ++group)
      groups.emplace_back(rank, group);
  is_dependence_.resize(groups.size());
  for (size_t i = 0; i < groups.size(); ++i) is_dependence_[i].resize(steps(i).size());
  for (size_t i = 0; i < groups.size(); ++i)
    for (const Step& step : steps(i))
      for (const StepId& id : step.after) is_dependence_[group_of(groups[i].first, id.group)][id.step] = true;
}

Element PlanView::element_at(int rank, Buffer buffer, uint32_t chunk, int element) const {
  const uint32_t input = plan.input_chunks(rank), output = plan.output_chunks(rank);
  if (in_place && buffer != Buffer::scratch && input != 0 && output != 0) {
    const Buffer large = input > output ? Buffer::input : Buffer::output;
    if (buffer != large && input != output) chunk += static_cast<uint32_t>(rank) * std::min(input, output);
    buffer = large;
  }
  return {rank, buffer, chunk, element};
}

std::vector<int> PlanView::ranks_of(int rank, const Operand& operand) const {
  if (operand.place == Place::local) return {rank};
  const Channel& channel = plan.channels[operand.channel];
  if (operand.place == Place::everywhere) return channel.ranks;
  return {channel.from == rank ? channel.to : channel.from};
}

std::vector<Access> PlanView::accesses_of(int rank, const Step& step, const Operand& operand, bool is_write, int thread,
                                          int call) const {
  std::vector<Access> accesses;
  if (operand.place == Place::message) return accesses;
  const int elements = static_cast<int>(step.count) * threads, part = elements / threads;
  for (const int target : ranks_of(rank, operand))
    for (int i = 0; i < elements; ++i) {
      if (thread >= 0 && i / part != thread) continue;
      uint32_t chunk = operand.chunk + static_cast<uint32_t>(i / threads);
      if (operand.buffer == Buffer::scratch && plan.scratch_copies == 2 && call % 2 == 1) chunk += 100;
      const Element element = element_at(target, operand.buffer, chunk, i % threads);
      const Element first = element_at(target, operand.buffer, operand.chunk, 0);
      accesses.push_back(
          {element, is_write, operand.packets, {first.buffer, first.chunk, step.count, operand.packets}});
    }
  return accesses;
}

std::vector<Access> PlanView::own_accesses(size_t group, size_t index, int thread, int call) const {
  const Step& step = steps(group)[index];
  const int rank = groups[group].first;
  std::vector<Access> accesses;
  const bool gets_by_port =
      std::any_of(step.from.begin(), step.from.end(), [&](const Operand& o) { return is_port(o); });
  bool reads = false;
  for (const Operand& to : step.to) {
    if (is_port(to) || gets_by_port) continue;
    reads = true;
    for (const Access& access : accesses_of(rank, step, to, true, thread, call)) accesses.push_back(access);
  }
  if (reads)
    for (const Operand& from : step.from)
      for (const Access& access : accesses_of(rank, step, from, false, thread, call)) accesses.push_back(access);
  return accesses;
}

const Operand* PlanView::engine_operand(const Step& step, size_t position) const {
  if (is_port(step.to[position])) return &step.to[position];
  for (const Operand& from : step.from)
    if (is_port(from)) return &from;
  return nullptr;
}

std::vector<Access> PlanView::engine_accesses(size_t group, const EngineItem& item, int call) const {
  std::vector<Access> accesses;
  if (item.position == EngineItem::signal) return accesses;
  const Step& step = steps(group)[item.step];
  const int rank = groups[group].first;
  accesses = accesses_of(rank, step, step.to[item.position], true, -1, call);
  for (const Operand& from : step.from)
    for (const Access& access : accesses_of(rank, step, from, false, -1, call)) accesses.push_back(access);
  return accesses;
}

bool PlanView::releases(size_t group, size_t index, int thread) const {
  const Step& step = steps(group)[index];
  if (is_dependence_[group][index]) return true;
  switch (step.kind) {
    case StepKind::barrier: return true;
    case StepKind::sync: return threads > 1;
    case StepKind::signal:
      return thread == 0 && std::any_of(step.channels.begin(), step.channels.end(),
                                        [&](uint32_t channel) { return !is_relaxed(group, index, channel); });
    default: return false;
  }
}

bool PlanView::is_relaxed(size_t group, size_t index, uint32_t channel) const {
  if (steps(group)[index].relaxed) return true;
  if (plan.channels[channel].initial != 0) return false;
  size_t position = 0;
  for (size_t i = 0; i < index; ++i)
    if (steps(group)[i].kind == StepKind::signal)
      position +=
          static_cast<size_t>(std::count(steps(group)[i].channels.begin(), steps(group)[i].channels.end(), channel));
  std::set<size_t> waiters;
  std::vector<bool> waits;
  for (size_t other = 0; other < groups.size(); ++other)
    for (const Step& step : steps(other)) {
      const auto count = std::count(step.channels.begin(), step.channels.end(), channel);
      if (step.kind == StepKind::signal && count != 0 && other != group) return false;
      if (step.kind != StepKind::wait || count == 0) continue;
      waiters.insert(other);
      waits.insert(waits.end(), static_cast<size_t>(count), step.relaxed);
    }
  return waiters.size() == 1 && position < waits.size() && waits[position];
}

bool PlanView::releases_by_message(const Step& step) const {
  return threads == 1 && std::any_of(step.to.begin(), step.to.end(), [&](const Operand& to) {
           return to.place == Place::message && !plan.channels[to.channel].packets;
         });
}

}  // namespace narrowcast::plan::verify::testing
