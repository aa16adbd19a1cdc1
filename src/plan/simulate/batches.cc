#include "plan/simulate/batches.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "plan/simulate/kernel.h"

namespace narrowcast::plan::simulate {
namespace {

double chunk_bytes_of(const Plan& plan, const Options& options) {
  return static_cast<double>(options.piece_bytes) / plan.chunks;
}

// Reductions in slots are executed in turns, in each of which a warp handles one block of every chunk. No more warps
// take part than needed for the number of turns.
struct Turns {
  double count;
  uint32_t workers;  // each stands for some warps of every CTA
};
Turns turns_of(double chunk_bytes, const Machine& machine, const Options& options) {
  const double blocks = std::ceil(chunk_bytes / block_bytes);
  const double count = std::max(1.0, std::ceil(blocks / (reducing_warps * machine.ctas)));
  const double warps = std::round(blocks / count / machine.ctas);
  return {count, static_cast<uint32_t>(std::clamp<double>(warps, 1, std::max(1u, options.workers)))};
}

// The part of every chunk that the warps of a CTA handle at a time if the plan has no slots: a row of packets each.
constexpr double rows_bytes = 16 << 10;
// Rows are sent and received independently. A micro-batch stands for as few rows as the limit of micro-batches allows.
double batch_of_rows_bytes(double chunk_bytes, const Options& options) {
  constexpr double least = 8 << 10, most = 128 << 10;
  return std::clamp(chunk_bytes / options.max_batches, least, most);
}

// A single micro-batch is the whole call.
bool has_turns(const Plan& plan, const Options& options) {
  return options.max_batches > 1 && uses_slots(plan) && reduces(plan);
}

// The maximum over ranks of groups that send, or receive, values in slots. They share the warps.
size_t transferring_groups(const Plan& plan) {
  size_t most = 1;
  const auto count = [&](const Rank& rank, auto operands) {
    return static_cast<size_t>(std::ranges::count_if(rank.groups, [&](const Group& group) {
      return std::ranges::any_of(group.steps, [&](const Step& step) {
        return std::ranges::any_of(operands(step), [](const Operand& one) { return one.place == Place::message; });
      });
    }));
  };
  for (const Rank& rank : plan.ranks)
    most = std::max({most, count(rank, [](const Step& step) { return std::span(step.from); }),
                     count(rank, [](const Step& step) { return std::span(step.to); })});
  return most;
}

}  // namespace

double full_batches_of(const Plan& plan, const Machine& machine, const Options& options) {
  const double bytes = chunk_bytes_of(plan, options);
  if (!uses_slots(plan)) return bytes / batch_of_rows_bytes(bytes, options);
  if (has_turns(plan, options)) {
    const Turns turns = turns_of(bytes, machine, options);
    return turns.count * turns.workers;
  }
  // A warp that moves blocks has four blocks in flight.
  const double groups = options.max_batches > 1 ? static_cast<double>(transferring_groups(plan)) : 1;
  return bytes / (4.0 * block_bytes * machine.ctas) * groups;
}

Batches batches_of(const Plan& plan, const Machine& machine, const Options& options) {
  constexpr uint64_t most_tasks = 250'000;  // about a second
  uint64_t steps = 1;
  for (const Rank& rank : plan.ranks)
    for (const Group& group : rank.groups) steps += group.steps.size();
  const auto by_size = static_cast<uint64_t>(full_batches_of(plan, machine, options));
  const uint64_t most = std::max<uint64_t>(1, std::min<uint64_t>(options.max_batches, most_tasks / steps));
  const auto count = static_cast<uint32_t>(std::clamp<uint64_t>(by_size, 1, most));
  const double bytes = chunk_bytes_of(plan, options);
  const bool in_turns = has_turns(plan, options);
  double workers = options.workers;
  if (in_turns)
    workers = turns_of(bytes, machine, options).workers;
  else if (!uses_slots(plan))
    workers = rows_bytes * machine.ctas / bytes * count;
  return {count, bytes / count, static_cast<uint32_t>(std::clamp<double>(workers, 1, count)), in_turns};
}

}  // namespace narrowcast::plan::simulate
