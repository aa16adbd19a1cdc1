#include "plan/simulate/batches.h"

#include <algorithm>

namespace narrowcast::plan::simulate {
namespace {

// The least bytes of a chunk in a micro-batch: what all CTAs have in flight at a time. Packets are short, but of slots
// each CTA fills several, one for every warp that sends.
double least_part_bytes(const Plan& plan, const Machine& machine) {
  constexpr double packet_part_bytes = 64 << 10, slots_part_bytes_of_cta = 32 << 10;
  const bool uses_slots = std::ranges::any_of(
      plan.channels, [](const Channel& channel) { return channel.kind == ChannelKind::ring && !channel.packets; });
  return uses_slots ? slots_part_bytes_of_cta * machine.ctas : packet_part_bytes;
}

}  // namespace

uint32_t batches_of(const Plan& plan, const Machine& machine, const Options& options) {
  constexpr uint64_t most_tasks = 250'000;
  uint64_t steps = 1;
  for (const Rank& rank : plan.ranks)
    for (const Group& group : rank.groups) steps += group.steps.size();
  const auto by_size =
      static_cast<uint64_t>(static_cast<double>(options.piece_bytes) / plan.chunks / least_part_bytes(plan, machine));
  const uint64_t most = std::max<uint64_t>(1, std::min<uint64_t>(options.max_batches, most_tasks / steps));
  return static_cast<uint32_t>(std::clamp<uint64_t>(by_size, 1, most));
}

}  // namespace narrowcast::plan::simulate
