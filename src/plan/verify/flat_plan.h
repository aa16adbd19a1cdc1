// A plan in the form that the passes of the verifier use: steps in one array, loops unrolled, and messages split if
// requested.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/budget.h"
#include "plan/ir.h"
#include "plan/verify/report.h"

namespace narrowcast::plan::verify {

inline constexpr uint32_t none = UINT32_MAX;

// A step as it is executed. Each iteration of a loop begins and ends with a boundary, a FlatStep of the loop itself.
struct FlatStep {
  const Step* step;
  uint32_t group;         // in FlatPlan::groups
  uint32_t index;         // in the group; of the loop for the steps of its body
  int32_t body;           // in the loop; -1 for other steps
  uint32_t first, cells;  // the part of each operand's range, in cells
};

struct FlatGroup {
  int rank;
  uint32_t index;        // in the rank
  uint32_t begin, end;   // in FlatPlan::steps
  uint32_t first_index;  // of its steps in FlatPlan::step_ends
};

struct FlatChannel {
  uint32_t sender = none, receiver = none;  // groups; of a ring
  uint32_t messages = 0;
  std::vector<uint32_t> signallers, waiters;  // groups; of a semaphore
  uint32_t signals = 0;                       // per call
};

struct FlatPlan {
  HeldMemory memory;
  const Plan* plan;
  uint32_t parts;  // cells of a chunk. More than one if the plan has loops: an iteration processes one cell of a chunk
  bool split;
  std::vector<FlatStep> steps;  // by rank and group
  std::vector<FlatGroup> groups;
  std::vector<uint32_t> rank_groups;  // of each rank the first group; one more at the end
  std::vector<uint32_t> step_ends;    // of each step of the plan, the flat step after its last one
  std::vector<FlatChannel> channels;
  std::vector<uint32_t> rank_barriers;            // of each rank its first barrier
  std::vector<std::vector<uint32_t>> barriers;    // groups
  bool has_packets = false, has_relaxed = false;  // packets; relaxed signals or waits
  bool has_wide_messages = false;                 // of more than one chunk

  uint32_t group_of(int rank, uint32_t group) const { return rank_groups[static_cast<size_t>(rank)] + group; }
  int rank_of(const FlatStep& step) const { return groups[step.group].rank; }
  // The flat step at which step `id` of the rank has completed.
  uint32_t end_of(int rank, StepId id) const {
    return step_ends[groups[group_of(rank, id.group)].first_index + id.step];
  }
  bool is_boundary(const FlatStep& step) const { return step.step->kind == StepKind::loop; }
  Where where(uint32_t flat) const;
  // The rank at the other end of the channel of a remote operand.
  int peer_of(int rank, const Operand& operand) const {
    const Channel& channel = plan->channels[operand.channel];
    return channel.from == rank ? channel.to : channel.from;
  }
};

// The flat form of a plan whose structure is valid.
FlatPlan flatten(const Plan& plan, bool split);
// The most chunks of a step in the body of a loop.
uint32_t widest(const std::vector<Step>& body);
// How many flat steps flatten() would create.
uint64_t flat_steps(const Plan& plan, bool split);
// How many cells the memory of all ranks has.
uint64_t memory_cells(const Plan& plan);

// Where the chunks of each rank are in one array of cells.
class MemoryMap {
 public:
  MemoryMap(const Plan& plan, uint32_t parts, bool in_place);

  uint32_t base(int rank, Buffer buffer) const {
    return bases_[static_cast<size_t>(rank)][static_cast<size_t>(buffer)];
  }
  uint32_t cells() const { return cells_; }
  // For findings of this map: ", in a call in place" if the plan also works out of place, or may.
  const char* suffix() const { return suffix_; }

 private:
  const char* suffix_;
  std::vector<std::array<uint32_t, 3>> bases_;
  uint32_t cells_ = 0;
};

// In place and out of place, as the plan permits.
std::vector<MemoryMap> memory_maps(const Plan& plan, uint32_t parts);

// Calls visit(rank, first cell) for each rank whose memory a location operand of the step accesses.
template <typename Visit>
void each_range(const FlatPlan& flat_plan, const MemoryMap& map, const FlatStep& step, const Operand& operand,
                Visit visit) {
  const int rank = flat_plan.rank_of(step);
  const auto at = [&](int target) {
    visit(target, map.base(target, operand.buffer) + operand.chunk * flat_plan.parts + step.first);
  };
  switch (operand.place) {
    case Place::local: at(rank); break;
    case Place::remote: at(flat_plan.peer_of(rank, operand)); break;
    case Place::everywhere:
      for (const int member : flat_plan.plan->channels[operand.channel].ranks) at(member);
      break;
    case Place::message: break;
  }
}

// The other end of a ring, memory or port channel of a rank: "rank 1 (ring 5)", "rank 2 (channel 3)"; "semaphore 4" if
// the channel connects the rank with itself.
std::string describe(const Plan& plan, int rank, uint32_t channel);
// "output chunk 3", "scratch chunks 4 to 7 of rank 2", "a message to rank 1 (ring 5)".
std::string describe(const Plan& plan, int rank, const Operand& operand, uint32_t count);
// "copy of input chunk 0 to output chunk 0 and a message to rank 1 (ring 5)".
std::string describe(const FlatPlan& flat_plan, uint32_t flat);

}  // namespace narrowcast::plan::verify
