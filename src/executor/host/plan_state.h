// A prepared plan on this rank, and the call that it is running. The groups of the rank share it.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "executor/host/message.h"
#include "executor/host/plan_memory.h"
#include "executor/host/proved_plan.h"

namespace narrowcast::executor::host {

// Consecutive values.
struct Values {
  std::byte* start;
  uint64_t elems;
};

// Which values of a chunk a step is about: those of a micro-batch or, in a loop, a unit of them.
struct Part {
  uint64_t batch = 0;
  uint64_t first = 0;             // value of the micro-batch's part
  uint64_t elems = ~uint64_t{0};  // at most
};

struct PlanState {
  PlanState(Communicator& communicator, std::shared_ptr<const ProvedPlan> prepared)
      : comm(communicator),
        loaded(std::move(prepared)),
        plan(&loaded->plan),
        facts(*plan),
        consumed(plan->channels.size()),
        sent(plan->channels.size()),
        received(plan->channels.size()) {
    for (const plan::verify::Where& where : loaded->completing) {
      if (where.rank != comm.rank()) continue;
      const plan::Step& step =
          rank_plan().groups[static_cast<size_t>(where.group)].steps[static_cast<size_t>(where.step)];
      completing.push_back(where.body < 0 ? &step : &step.body[static_cast<size_t>(where.body)]);
    }
    std::ranges::sort(completing);
  }

  Communicator& comm;
  const std::shared_ptr<const ProvedPlan> loaded;
  const plan::Plan* const plan;
  const PlanFacts facts;
  PlanMemory memory;

  // Whether the step's result first has the values of all ranks, so that averages divide it.
  bool completes(const plan::Step& step) const { return std::ranges::binary_search(completing, &step); }

  // By channel, since the plan was prepared: how often this rank has waited for a semaphore, and messages of a ring.
  std::vector<uint64_t> consumed, sent, received;
  std::vector<const plan::Step*> completing;  // sorted: large plans have many
  uint64_t epoch = 0;                         // micro-batches of earlier calls

  // The call.
  CallTag tag = {};
  ncast_dtype dtype = NCAST_INT8;
  ncast_redop redop = NCAST_SUM;
  std::byte* input = nullptr;  // not written, unless it is also the output
  std::byte* output = nullptr;
  std::vector<std::byte> scaled;  // the input of a sum with a factor, multiplied
  size_t value_bytes = 1;
  ncast_dtype partial_dtype = NCAST_INT8;  // of sums that have not been rounded
  uint64_t count = 0;
  uint64_t chunk_elems = 0;         // of a chunk; the last ones of a piece may have fewer values
  uint64_t part_elems = 0;          // of a chunk in a micro-batch
  uint64_t packet_frame_elems = 0;  // in a frame of packets, at most
  uint64_t batches = 0;
  // By barrier and its groups: how often the group has reached it.
  std::vector<std::vector<uint64_t>> arrivals;

  const plan::Rank& rank_plan() const { return plan->ranks[static_cast<size_t>(comm.rank())]; }
  uint32_t copy_of(uint64_t batch) const { return static_cast<uint32_t>((epoch + batch) % plan->scratch_copies); }

  void begin(const Call& call, const CallTag& call_tag);
  // How many values of a chunk belong to a micro-batch.
  uint64_t elems_of(plan::Buffer buffer, uint32_t chunk, uint64_t batch) const;
  // Where a part of a chunk is while the plan runs. bytes: of a value there, if it is a partial sum.
  Values locate(int rank, plan::Buffer buffer, uint32_t chunk, const Part& part, size_t bytes) const;
  Values locate(int rank, plan::Buffer buffer, uint32_t chunk, const Part& part) const {
    return locate(rank, buffer, chunk, part, value_bytes);
  }
  // The index of its first value in the user's buffer, and where that is. Not for scratch.
  uint64_t first_elem_of(uint32_t chunk, uint64_t batch) const;
  std::byte* in_user_memory(plan::Buffer buffer, uint32_t chunk, uint64_t batch) const;
};

}  // namespace narrowcast::executor::host
