#include <algorithm>
#include <limits>
#include <string>

#include "plan/budget.h"
#include "plan/lower/lower.h"
#include "status/error.h"

namespace narrowcast::plan::lower {
namespace {

constexpr uint64_t max_index = std::numeric_limits<uint32_t>::max();

// The number of single-chunk steps that a step becomes.
uint32_t parts_of(const Step& step) {
  return (step.kind == StepKind::copy || step.kind == StepKind::reduce) && step.count > 1 ? step.count : 1;
}

class Replication {
 public:
  explicit Replication(const Plan& plan) : plan_(plan), n_(plan.instances) {}

  ncast_status run(Plan* replicated) const {
    if (n_ == 0) return fail(NCAST_INVALID_ARGUMENT, "plan: instances is 0");
    check_size();
    Plan result = plan_;
    result.instances = 1;
    result.chunks = plan_.chunks * n_;
    result.channels.clear();
    for (const Channel& channel : plan_.channels) result.channels.insert(result.channels.end(), n_, channel);
    for (size_t i = 0; i < plan_.ranks.size(); ++i) result.ranks[i] = replicate_rank(plan_.ranks[i]);
    *replicated = std::move(result);
    return NCAST_OK;
  }

 private:
  // Every index must fit 32 bits.
  void check_size() const {
    uint64_t steps = 0, listed = plan_.channels.size(), largest = plan_.chunks * uint64_t{plan_.ranks.size()};
    const auto count = [&](const std::vector<Step>& all) {
      for (const Step& step : all) {
        steps += parts_of(step);
        listed += step.after.size() + parts_of(step) * (step.from.size() + step.to.size() + step.channels.size());
        for (const std::vector<Operand>* operands : {&step.from, &step.to})
          for (const Operand& operand : *operands) largest = std::max(largest, uint64_t{operand.chunk} + step.count);
      }
    };
    for (const Rank& rank : plan_.ranks) {
      largest = std::max({largest, uint64_t{rank.scratch_chunks}, uint64_t{rank.groups.size()}});
      listed += rank.groups.size();
      for (const std::vector<uint32_t>& groups : rank.barriers) listed += 1 + groups.size();
      for (const Group& group : rank.groups) {
        count(group.steps);
        for (const Step& step : group.steps) count(step.body);
      }
    }
    const std::string instances = std::to_string(n_) + " instances, ";
    // Numbers above the limit are not multiplied, to avoid overflow.
    const auto in_all = [&](uint64_t number) { return number > max_index ? number : number * n_; };
    check_limit(instances + "steps in all:", in_all(steps), max_steps);
    check_limit(instances + "operands, dependences, channels and groups in all:", in_all(listed), max_listed);
    check_limit(instances + "the highest number of a chunk or channel is",
                in_all(std::max(largest, uint64_t{plan_.channels.size()})), max_index);
  }

  uint32_t index(uint32_t old, uint32_t instance) const {
    return static_cast<uint32_t>(std::min(old * uint64_t{n_} + instance, max_index));
  }

  Rank replicate_rank(const Rank& rank) const {
    Rank result;
    result.scratch_chunks = rank.scratch_chunks * n_;
    // By group and step, the last of its replicated steps.
    std::vector<std::vector<uint32_t>> last(rank.groups.size());
    for (size_t group = 0; group < rank.groups.size(); ++group) {
      uint32_t next = 0;
      for (const Step& step : rank.groups[group].steps) last[group].push_back((next += parts_of(step)) - 1);
    }
    for (const std::vector<uint32_t>& groups : rank.barriers) {
      for (uint32_t instance = 0; instance < n_; ++instance) {
        std::vector<uint32_t>& members = result.barriers.emplace_back();
        for (uint32_t group : groups) members.push_back(index(group, instance));
      }
    }
    for (const Group& group : rank.groups) {
      for (uint32_t instance = 0; instance < n_; ++instance)
        result.groups.push_back({replicate_steps(group.steps, instance, last)});
    }
    return result;
  }

  std::vector<Step> replicate_steps(const std::vector<Step>& steps, uint32_t instance,
                                    const std::vector<std::vector<uint32_t>>& last) const {
    std::vector<Step> result;
    for (const Step& step : steps) {
      const uint32_t parts = parts_of(step);
      for (uint32_t part = 0; part < parts; ++part) {
        Step& one = result.emplace_back(step);
        one.count = parts == 1 ? step.count : 1;
        if (part != 0) one.after.clear();
        for (std::vector<Operand>* operands : {&one.from, &one.to}) {
          for (Operand& operand : *operands) {
            if (operand.has_location()) operand.chunk = index(operand.chunk + part, instance);
            if (operand.has_channel()) operand.channel = index(operand.channel, instance);
          }
        }
        for (uint32_t& channel : one.channels) channel = index(channel, instance);
        one.barrier = index(step.barrier, instance);
        for (StepId& id : one.after) {
          // Dangling ids stay dangling, for the verifier to report.
          const bool exists = id.group < last.size() && id.step < last[id.group].size();
          id = {index(id.group, instance), exists ? last[id.group][id.step] : static_cast<uint32_t>(max_index)};
        }
        one.body = replicate_steps(step.body, instance, last);
      }
    }
    return result;
  }

  const Plan& plan_;
  const uint32_t n_;
};

}  // namespace

ncast_status replicate(const Plan& plan, Plan* replicated) {
  if (plan.instances == 1) {
    *replicated = plan;
    return NCAST_OK;
  }
  return within_budget([&] { return Replication(plan).run(replicated); });
}

}  // namespace narrowcast::plan::lower
