#include "plan/simulate/kernel.h"

#include <algorithm>
#include <cstddef>

namespace narrowcast::plan::simulate {
namespace {

template <typename Predicate>
bool any_step(const Plan& plan, Predicate predicate) {
  return std::ranges::any_of(plan.ranks, [&](const Rank& rank) {
    return std::ranges::any_of(rank.groups, [&](const Group& group) {
      return std::ranges::any_of(
          group.steps, [&](const Step& step) { return predicate(step) || std::ranges::any_of(step.body, predicate); });
    });
  });
}

bool receives(const Step& step) { return step.kind == StepKind::copy && step.from[0].place == Place::message; }

bool passes_on(const Step& step) {
  return receives(step) && std::ranges::any_of(step.to, [](const Operand& to) { return to.place == Place::message; });
}

bool encodes(const Step& step) {
  return std::ranges::any_of(step.to, [](const Operand& to) { return to.codec != NCAST_CODEC_RAW; });
}

bool is_reduction(const Step& step) { return step.kind == StepKind::reduce; }

// Whether a hand-written kernel exists for the reduction: every rank reduces at most once and forwards nothing.
bool reduces_pieces(const Plan& plan) {
  const auto reductions_of = [](const Rank& rank) {
    std::ptrdiff_t count = 0;
    for (const Group& group : rank.groups) count += std::ranges::count_if(group.steps, is_reduction);
    return count;
  };
  return reduces(plan) && !any_step(plan, passes_on) &&
         std::ranges::all_of(plan.ranks, [&](const Rank& rank) { return reductions_of(rank) <= 1; });
}

bool is_clustered(const Plan& plan, const Machine& machine, const Options& options) {
  return machine.clustered_ctas != 0 && plan.operation == Operation::all_reduce && reduces_pieces(plan) &&
         any_step(plan, receives) && static_cast<double>(options.piece_bytes) / plan.chunks >= min_clustered_bytes;
}

}  // namespace

bool uses_slots(const Plan& plan) {
  return std::ranges::any_of(
      plan.channels, [](const Channel& channel) { return channel.kind == ChannelKind::ring && !channel.packets; });
}

bool reduces(const Plan& plan) { return any_step(plan, is_reduction); }

bool is_raw(const Plan& plan) { return !any_step(plan, encodes); }

double launch_us_of(const Plan& plan, const Machine& machine) {
  return machine.launch_us + (uses_slots(plan) ? machine.slots_launch_us : 0);
}

double codec_share_of(const Plan& plan, const Machine& machine, const Options& options) {
  if (!reduces(plan)) return 1;
  return options.max_batches == 1 || reduces_pieces(plan) ? machine.reducing_codec_share
                                                          : machine.generated_codec_share;
}

Machine used_by_kernel(const Plan& plan, const Machine& machine, const Options& options) {
  Machine used = machine;
  if (options.max_batches == 1 || !uses_slots(plan)) return used;
  // Some SMs are slower than others. Warps with fixed blocks delay the call on these SMs; other warps only send fewer
  // blocks. Clusters do not run on these SMs.
  const bool fixes_blocks = reduces(plan) || any_step(plan, passes_on);
  if (!fixes_blocks) return used;
  if (is_clustered(plan, machine, options)) {
    used.ctas = std::min(machine.ctas, machine.clustered_ctas);
    return used;
  }
  const double share = is_raw(plan) ? machine.slow_sm_raw_share : machine.slow_sm_share;
  for (double Machine::* rate : {&Machine::link_gbps, &Machine::cta_move_gbps, &Machine::cta_reduce_gbps,
                                 &Machine::cta_encode_gbps, &Machine::cta_decode_gbps})
    used.*rate *= share;
  return used;
}

}  // namespace narrowcast::plan::simulate
