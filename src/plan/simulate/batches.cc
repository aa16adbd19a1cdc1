#include "plan/simulate/batches.h"

#include <algorithm>

namespace narrowcast::plan::simulate {
namespace {

// The least bytes of a chunk in a micro-batch. A worker's micro-batch stands for the blocks that some warps of each CTA
// have in flight: all workers together for 128 KiB of each CTA, which is what warps with 4 KiB each move at a time and
// have sent ahead. Packets are short.
double least_part_bytes(const Plan& plan, const Machine& machine) {
  constexpr double packet_part_bytes = 128 << 10, slots_part_bytes_of_cta = 16 << 10;
  return uses_slots(plan) ? slots_part_bytes_of_cta * machine.ctas : packet_part_bytes;
}

double chunk_bytes_of(const Plan& plan, const Options& options) {
  return static_cast<double>(options.piece_bytes) / plan.chunks;
}

}  // namespace

bool uses_slots(const Plan& plan) {
  return std::ranges::any_of(
      plan.channels, [](const Channel& channel) { return channel.kind == ChannelKind::ring && !channel.packets; });
}

double full_batches_of(const Plan& plan, const Machine& machine, const Options& options) {
  return chunk_bytes_of(plan, options) / least_part_bytes(plan, machine);
}

Batches batches_of(const Plan& plan, const Machine& machine, const Options& options) {
  constexpr uint64_t most_tasks = 250'000;
  uint64_t steps = 1;
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank)
    for (const Group& group : plan.ranks[options.orbits != nullptr ? options.orbits->ranks[rank] : rank].groups)
      steps += group.steps.size();
  const auto by_size = static_cast<uint64_t>(full_batches_of(plan, machine, options));
  const uint64_t most = std::max<uint64_t>(1, std::min<uint64_t>(options.max_batches, most_tasks / steps));
  const auto count = static_cast<uint32_t>(std::clamp<uint64_t>(by_size, 1, most));
  return {count, chunk_bytes_of(plan, options) / count};
}

}  // namespace narrowcast::plan::simulate
