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

// A call can also race with the second next one.
constexpr uint32_t calls = 3;

struct Prepared {
  FlatPlan flat_plan;
  std::vector<uint32_t> order;
  SharedSemaphores shared;
};

class Verification {
 public:
  Verification(const Plan& plan, const Options& options) : plan_(plan), options_(options) {}

  Report run() {
    const Budget budget;
    const auto start = std::chrono::steady_clock::now();
    try {
      report_.finding = check_structure(plan_);
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

  // Finds the order and the least depth of a flat plan. Returns a finding of structure or deadlock.
  Finding prepare(Prepared& prepared, uint32_t& least_depth) const {
    Finding finding = check_matching(prepared.flat_plan);
    if (finding.found()) return finding;
    check_signals(prepared.flat_plan);
    Synchronization synchronization(prepared.flat_plan);
    if (synchronization.run(options_.depth)) {
      prepared.order = synchronization.order();
      prepared.shared = SharedSemaphores(prepared.flat_plan, prepared.order);
    } else {
      finding = synchronization.deadlock();
    }
    if (prepared.shared.has_shared_waits()) {
      synchronization.set_shared_semaphores(prepared.shared);
      if (!synchronization.run(options_.depth))
        throw Unsupported(
            "several groups wait on the same channel, and whether the plan completes can depend on which of "
            "them a signal lets go on: " +
            synchronization.deadlock().message);
    }
    least_depth = synchronization.least_depth();
    return finding;
  }

  void check_whole() {
    HeldMemory memory;
    check_size(plan_, false, &memory);
    Prepared prepared{flatten(plan_, false), {}, {}};
    report_.steps = prepared.flat_plan.steps.size();
    Finding& finding = report_.finding;
    finding = prepare(prepared, report_.least_depth);
    if (finding.found()) return;
    finding = find_race(prepared.flat_plan, prepared.order, prepared.shared, calls);
    if (finding.found()) return;
    std::vector<uint32_t> completing;  // the same in place and out of place
    for (const MemoryMap& map : memory_maps(plan_, prepared.flat_plan.parts)) {
      Values values = compute_values(prepared.flat_plan, prepared.order, map);
      report_.roundings = std::max(report_.roundings, values.roundings);
      report_.inexact_encodings = std::max(report_.inexact_encodings, values.inexact_encodings);
      report_.rank_order &= values.rank_order;
      report_.same_everywhere &= values.same_everywhere;
      report_.can_average &= values.can_average;
      completing = std::move(values.completing);
      if (!values.finding.found()) continue;
      finding = std::move(values.finding);
      finding.message += map.suffix();
      break;
    }
    for (const uint32_t flat : completing) report_.completing.push_back(prepared.flat_plan.where(flat));
    has_wide_messages_ = prepared.flat_plan.has_wide_messages;
  }

  // Splitting changes no results if there are no races.
  void check_split() {
    report_.split_ok = true;
    report_.depth_needed_when_split = report_.least_depth;
    if (!has_wide_messages_ || !options_.split) return;
    report_.depth_needed_when_split = 0;
    HeldMemory memory;
    check_size(plan_, true, &memory);
    Prepared prepared{flatten(plan_, true), {}, {}};
    report_.split_finding = prepare(prepared, report_.depth_needed_when_split);
    if (!report_.split_finding.found())
      report_.split_finding = find_race(prepared.flat_plan, prepared.order, prepared.shared, calls);
    report_.split_ok = !report_.split_finding.found();
  }

  const Plan& plan_;
  const Options options_;
  Report report_;
  bool has_wide_messages_ = false;
};

}  // namespace

Report verify(const Plan& plan, const Options& options) { return Verification(plan, options).run(); }

}  // namespace narrowcast::plan::verify
