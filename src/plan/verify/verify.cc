#include "plan/verify/verify.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "plan/budget.h"
#include "plan/verify/races.h"
#include "plan/verify/shared_semaphores.h"
#include "plan/verify/structure.h"
#include "plan/verify/synchronization.h"
#include "plan/verify/values.h"

namespace narrowcast::plan::verify {

namespace {

// Estimates of the memory per object: a step is kept as written and fused; a flat step has orders and dependents; a
// cell has accesses in several maps and a value; groups and channels have clocks and queues.
constexpr uint64_t bytes_of_step = 512, bytes_of_flat_step = 64, bytes_of_cell = 160, bytes_of_group = 512,
                   bytes_of_channel = 512;

// The plan can be neither proved nor refuted.
class Unsupported : public std::runtime_error {
 public:
  using runtime_error::runtime_error;
};

void check_size(const Plan& plan, bool split, HeldMemory* memory) {
  const uint64_t steps = flat_steps(plan, split), cells = memory_cells(plan);
  check_limit("steps, with loops unrolled and messages split:", steps, max_flat_steps);
  check_limit("chunks of buffers:", cells, max_cells);
  uint64_t groups = 0, written = 0;
  for (const Rank& rank : plan.ranks) {
    groups += rank.groups.size();
    for (const Group& group : rank.groups) written += group.steps.size();
  }
  memory->grow(written * bytes_of_step + steps * bytes_of_flat_step + cells * bytes_of_cell + groups * bytes_of_group +
               plan.channels.size() * bytes_of_channel);
  spend(steps + cells + groups + plan.channels.size());
}

// Signals on shared semaphores are compared pairwise.
void check_signals(const FlatPlan& flat_plan) {
  for (const FlatChannel& channel : flat_plan.channels)
    if (channel.signallers.size() > 1 || channel.waiters.size() > 1)
      check_limit("signals between several groups on a channel:", channel.signals, max_shared_signals);
}

struct Prepared {
  HeldMemory memory;
  FlatPlan flat_plan;
  std::vector<uint32_t> order;
  SharedSemaphores shared;
};

class Verification {
 public:
  Verification(std::span<const Plan* const> plans, const Options& options) : plans_(plans), options_(options) {}

  Report run() {
    const Budget budget;
    const auto start = std::chrono::steady_clock::now();
    try {
      for (size_t i = 0; i < plans_.size() && !report_.finding.found(); ++i) {
        report_.finding = check_structure(*plans_[i]);
        report_.finding.where.plan = static_cast<int>(i);
      }
      if (!report_.finding.found()) check_whole();
      if (!report_.finding.found()) check_split();
    } catch (const Unsupported& error) {
      give_up(error.what());
    } catch (const TooLarge& error) {
      give_up(error.what());
    }
    if (report_.finding.found()) report_.verdict = Verdict::refuted;
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  void give_up(const char* reason) {
    report_.verdict = Verdict::unsupported;
    report_.finding = {};
    report_.finding.message = reason;
  }

  static void name_plan(Finding& finding, size_t plan) {
    finding.where.plan = static_cast<int>(plan);
    for (TraceStep& step : finding.trace) step.where.plan = static_cast<int>(plan);
  }

  // Flattens the plans and finds their orders. Returns a finding of structure or deadlock.
  Finding prepare(bool split, std::vector<Prepared>& prepared, uint32_t& least_depth) {
    prepared.reserve(plans_.size());
    for (size_t i = 0; i < plans_.size(); ++i) {
      HeldMemory memory;
      check_size(*plans_[i], split, &memory);
      Prepared& current = prepared.emplace_back(Prepared{std::move(memory), flatten(*plans_[i], split), {}, {}});
      if (!split) report_.steps += current.flat_plan.steps.size();
      Finding finding = check_matching(current.flat_plan);
      if (!finding.found()) check_signals(current.flat_plan);
      if (!finding.found()) finding = find_order(current, least_depth);
      if (finding.found()) {
        name_plan(finding, i);
        return finding;
      }
    }
    return {};
  }

  // Finds an order, and the least depth. Returns a finding of deadlock.
  Finding find_order(Prepared& plan, uint32_t& least_depth) const {
    Synchronization synchronization(plan.flat_plan);
    const bool completes = synchronization.run(options_.depth);
    Finding finding;
    if (completes)
      plan.order = synchronization.order();
    else
      finding = synchronization.deadlock();
    if (completes) plan.shared = SharedSemaphores(plan.flat_plan, plan.order);
    if (plan.shared.has_shared_waits()) {
      synchronization.set_shared_semaphores(plan.shared);
      if (!synchronization.run(options_.depth))
        throw Unsupported(
            "several groups wait on the same channel, and whether the plan completes can depend on which of "
            "them a signal lets go on: " +
            synchronization.deadlock().message);
    }
    least_depth = std::max(least_depth, synchronization.least_depth());
    return finding;
  }

  // A sequence in which every plan follows each plan that it can follow; a single plan follows itself.
  std::vector<uint32_t> calls() const {
    const size_t count = plans_.size();
    std::vector<uint32_t> calls;
    calls.reserve(count + 2);
    for (size_t i = 0; i < count + 2; ++i) calls.push_back(static_cast<uint32_t>(i % count));
    return calls;
  }

  Finding check_races(const std::vector<Prepared>& prepared) const {
    std::vector<OrderedPlan> ordered;
    ordered.reserve(prepared.size());
    for (const Prepared& plan : prepared) ordered.push_back({&plan.flat_plan, plan.order, &plan.shared});
    return find_race(ordered, calls());
  }

  void check_whole() {
    std::vector<Prepared> prepared;
    Finding& finding = report_.finding;
    finding = prepare(false, prepared, report_.least_depth);
    if (finding.found()) return;
    finding = check_races(prepared);
    for (size_t i = 0; i < prepared.size() && !finding.found(); ++i) {
      std::vector<uint32_t> completing;  // the same in place and out of place
      for (const MemoryMap& map : memory_maps(*plans_[i], prepared[i].flat_plan.parts)) {
        Values values = compute_values(prepared[i].flat_plan, prepared[i].order, map);
        report_.roundings = std::max(report_.roundings, values.roundings);
        report_.inexact_encodings = std::max(report_.inexact_encodings, values.inexact_encodings);
        report_.rank_order &= values.rank_order;
        report_.same_everywhere &= values.same_everywhere;
        report_.can_average &= values.can_average;
        completing = std::move(values.completing);
        if (!values.finding.found()) continue;
        finding = std::move(values.finding);
        finding.message += map.suffix();
        name_plan(finding, i);
        break;
      }
      for (const uint32_t flat : completing) report_.completing.push_back(prepared[i].flat_plan.where(flat));
    }
    has_wide_messages_ = std::any_of(prepared.begin(), prepared.end(),
                                     [](const Prepared& plan) { return plan.flat_plan.has_wide_messages; });
  }

  // Splitting changes no results if there are no races.
  void check_split() {
    report_.split_ok = true;
    report_.depth_needed_when_split = report_.least_depth;
    if (!has_wide_messages_ || !options_.split) return;
    report_.depth_needed_when_split = 0;
    std::vector<Prepared> prepared;
    report_.split_finding = prepare(true, prepared, report_.depth_needed_when_split);
    if (!report_.split_finding.found()) report_.split_finding = check_races(prepared);
    report_.split_ok = !report_.split_finding.found();
  }

  const std::span<const Plan* const> plans_;
  const Options options_;
  Report report_;
  bool has_wide_messages_ = false;
};

}  // namespace

Report verify(std::span<const Plan* const> plans, const Options& options) { return Verification(plans, options).run(); }

Report verify(const Plan& plan, const Options& options) {
  const Plan* const plans[] = {&plan};
  return verify(std::span<const Plan* const>(plans), options);
}

}  // namespace narrowcast::plan::verify
