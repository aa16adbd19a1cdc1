#include "support/plan_mutations.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace narrowcast::plan::verify::testing {

namespace {

class Mutator {
 public:
  explicit Mutator(const Plan& plan) : plan_(plan) {}

  std::vector<Mutant> run() {
    if (plan_.scratch_copies == 2) add("one copy of the scratch", [](Plan& plan) { plan.scratch_copies = 1; });
    for (size_t rank = 0; rank < plan_.ranks.size(); ++rank)
      for (size_t group = 0; group < plan_.ranks[rank].groups.size(); ++group) mutate_group(rank, group);
    drop_pairs();
    return std::move(mutants_);
  }

 private:
  template <typename Change>
  void add(std::string name, Change change) {
    Mutant mutant{std::move(name), plan_};
    change(mutant.plan);
    mutants_.push_back(std::move(mutant));
  }

  static std::vector<Step>& steps(Plan& plan, size_t rank, size_t group) {
    return plan.ranks[rank].groups[group].steps;
  }

  // Removes a step, with what refers to it.
  static void erase(Plan& plan, size_t rank, size_t group, size_t index) {
    std::vector<Step>& list = steps(plan, rank, group);
    list.erase(list.begin() + static_cast<ptrdiff_t>(index));
    for (Group& other : plan.ranks[rank].groups)
      for (Step& step : other.steps) {
        std::vector<StepId> kept;
        for (StepId id : step.after) {
          if (id.group == group && id.step > index) --id.step;
          // What came after the removed step comes after the one before it.
          if (id.group == group && id.step == index && id.step-- == 0) continue;
          kept.push_back(id);
        }
        step.after = std::move(kept);
      }
  }

  void mutate_group(size_t rank, size_t group) {
    const std::vector<Step>& list = plan_.ranks[rank].groups[group].steps;
    const std::string at = "rank " + std::to_string(rank) + ", group " + std::to_string(group) + ", step ";
    for (size_t index = 0; index < list.size(); ++index) {
      const std::string here = at + std::to_string(index) + ": ";
      add(here + "dropped", [&](Plan& plan) { erase(plan, rank, group, index); });
      if (index + 1 < list.size() && list[index].after.empty() && list[index + 1].after.empty() &&
          !(is_same(list[index], list[index + 1])))
        add(here + "exchanged with the next",
            [&](Plan& plan) { std::swap(steps(plan, rank, group)[index], steps(plan, rank, group)[index + 1]); });
      mutate_step(here, list[index], [&](Plan& plan) -> Step& { return steps(plan, rank, group)[index]; });
      for (size_t inner = 0; inner < list[index].body.size(); ++inner) {
        const std::string there = here + "step " + std::to_string(inner) + " of the loop: ";
        if (list[index].body.size() > 1)
          add(there + "dropped", [&](Plan& plan) {
            std::vector<Step>& body = steps(plan, rank, group)[index].body;
            body.erase(body.begin() + static_cast<ptrdiff_t>(inner));
          });
        mutate_step(there, list[index].body[inner],
                    [&](Plan& plan) -> Step& { return steps(plan, rank, group)[index].body[inner]; });
      }
    }
  }

  static bool is_same(const Step& a, const Step& b) {
    return a.kind == b.kind && a.count == b.count && a.from == b.from && a.to == b.to && a.channels == b.channels &&
           a.relaxed == b.relaxed && a.barrier == b.barrier && a.body.empty() && b.body.empty();
  }

  template <typename Get>
  void mutate_step(const std::string& here, const Step& step, Get get) {
    for (size_t i = 0; i < step.after.size(); ++i)
      add(here + "dependence " + std::to_string(i) + " dropped",
          [&](Plan& plan) { get(plan).after.erase(get(plan).after.begin() + static_cast<ptrdiff_t>(i)); });
    if (step.channels.size() > 1)
      for (size_t i = 0; i < step.channels.size(); ++i)
        add(here + "channel " + std::to_string(i) + " dropped",
            [&](Plan& plan) { get(plan).channels.erase(get(plan).channels.begin() + static_cast<ptrdiff_t>(i)); });
    if ((step.kind == StepKind::signal || step.kind == StepKind::wait) && !step.relaxed)
      add(here + "relaxed", [&](Plan& plan) { get(plan).relaxed = true; });
    if (step.count > 1) add(here + "a chunk less", [&](Plan& plan) { --get(plan).count; });
    if (step.to.size() > 1)
      for (size_t i = 0; i < step.to.size(); ++i)
        add(here + "destination " + std::to_string(i) + " dropped",
            [&](Plan& plan) { get(plan).to.erase(get(plan).to.begin() + static_cast<ptrdiff_t>(i)); });
    if (step.from.size() > 1)
      for (size_t i = 0; i < step.from.size(); ++i)
        add(here + "source " + std::to_string(i) + " dropped", [&](Plan& plan) {
          Step& changed = get(plan);
          changed.from.erase(changed.from.begin() + static_cast<ptrdiff_t>(i));
          if (changed.from.size() == 1) changed.kind = StepKind::copy;
        });
    const auto operand_of = [](Step& owner, size_t list, size_t i) -> Operand& {
      return list == 0 ? owner.from[i] : owner.to[i];
    };
    for (size_t list = 0; list < 2; ++list)
      for (size_t i = 0; i < (list == 0 ? step.from : step.to).size(); ++i)
        mutate_operand(here + (list == 0 ? "source " : "destination ") + std::to_string(i),
                       (list == 0 ? step.from : step.to)[i],
                       [&](Plan& plan) -> Operand& { return operand_of(get(plan), list, i); });
    // Two chunks exchanged.
    for (size_t list = 0; list < 2; ++list) {
      const std::vector<Operand>& operands = list == 0 ? step.from : step.to;
      for (size_t i = 0; i < operands.size(); ++i)
        for (size_t j = 0; j < i; ++j)
          if (operands[i].has_location() && operands[j].has_location() && operands[i].chunk != operands[j].chunk)
            add(here + "offsets " + std::to_string(j) + " and " + std::to_string(i) + " exchanged", [&](Plan& plan) {
              std::swap(operand_of(get(plan), list, i).chunk, operand_of(get(plan), list, j).chunk);
            });
    }
  }

  template <typename Get>
  void mutate_operand(const std::string& here, const Operand& operand, Get get) {
    if (operand.has_location()) {
      add(here + " a chunk higher", [&](Plan& plan) { ++get(plan).chunk; });
      if (operand.chunk != 0) add(here + " a chunk lower", [&](Plan& plan) { --get(plan).chunk; });
      for (const Buffer buffer : {Buffer::input, Buffer::output, Buffer::scratch})
        if (buffer != operand.buffer && !operand.packets)
          add(here + " in another buffer", [&](Plan& plan) { get(plan).buffer = buffer; });
      if (operand.packets) add(here + " without flags", [&](Plan& plan) { get(plan).packets = false; });
    }
    if (!operand.has_channel()) return;
    const Channel& channel = plan_.channels[operand.channel];
    for (uint32_t other = 0; other < plan_.channels.size(); ++other) {
      const Channel& candidate = plan_.channels[other];
      const bool same_side = candidate.from == channel.from || candidate.to == channel.to;
      const bool other_peer = candidate.from != channel.from || candidate.to != channel.to;
      if (other != operand.channel && candidate.kind == channel.kind && same_side && other_peer)
        add(here + " on another channel", [&](Plan& plan) { get(plan).channel = other; });
    }
  }

  // A signal and a wait on the same channel, so that both still match.
  void drop_pairs() {
    struct Found {
      size_t rank, group, step, position;
    };
    std::vector<std::vector<Found>> signals(plan_.channels.size()), waits(plan_.channels.size());
    for (size_t rank = 0; rank < plan_.ranks.size(); ++rank)
      for (size_t group = 0; group < plan_.ranks[rank].groups.size(); ++group) {
        const std::vector<Step>& list = plan_.ranks[rank].groups[group].steps;
        for (size_t step = 0; step < list.size(); ++step)
          for (size_t i = 0; i < list[step].channels.size(); ++i) {
            if (list[step].kind == StepKind::signal) signals[list[step].channels[i]].push_back({rank, group, step, i});
            if (list[step].kind == StepKind::wait) waits[list[step].channels[i]].push_back({rank, group, step, i});
          }
      }
    const auto drop = [](Plan& plan, const Found& found) {
      std::vector<Step>& list = steps(plan, found.rank, found.group);
      std::vector<uint32_t>& channels = list[found.step].channels;
      channels.erase(channels.begin() + static_cast<ptrdiff_t>(found.position));
      // Without channels the step does nothing; its place in the group stays.
      if (channels.empty()) list[found.step] = {};
      if (channels.empty()) list[found.step].kind = StepKind::sync;
    };
    for (size_t channel = 0; channel < plan_.channels.size(); ++channel)
      for (const Found& signal : signals[channel])
        for (const Found& wait : waits[channel])
          add("a signal and a wait on channel " + std::to_string(channel) + " dropped", [&](Plan& plan) {
            drop(plan, signal);
            drop(plan, wait);
          });
  }

  const Plan& plan_;
  std::vector<Mutant> mutants_;
};

}  // namespace

std::vector<Mutant> mutants_of(const Plan& plan) { return Mutator(plan).run(); }

}  // namespace narrowcast::plan::verify::testing
