// Predicts how long a plan takes on a machine.
//
// Method: a discrete-event simulation with fluid transfers. Every group runs its steps for a few micro-batches, several
// of them at a time, as the warps of a kernel do. A step starts when its messages, credits, semaphores and dependences
// are there, and then progresses at the rate that the CTAs of its group and rank and the links allow. Groups share them
// equally; within a group earlier micro-batches go first. A micro-batch stands for the blocks, or packets, that all
// CTAs have in flight at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/ir.h"
#include "plan/simulate/machine.h"

namespace narrowcast::plan::simulate {

struct Options {
  uint64_t piece_bytes = 0;     // of `count` values of the call
  double ratio = 1;             // wire bytes / raw bytes of encoded values
  uint32_t max_batches = 16;    // micro-batches; fewer if the parts of a chunk would become short
  uint32_t workers = 4;         // how many micro-batches a group runs at a time
  uint32_t ctas_per_group = 0;  // 0: the groups of a rank share the CTAs of the machine
  bool records_timeline = false;
};

// A step of a micro-batch, in microseconds from the start of the call.
struct Interval {
  uint32_t rank, group, step, batch;
  double begin, end;
};

struct Activity {
  uint32_t rank, group;
  double busy_us;            // working
  double first_us, last_us;  // when it began to work and when it ended
};

struct Prediction {
  double microseconds = 0;
  uint32_t batches = 0;
  std::vector<Activity> groups;    // that have steps
  std::vector<double> sent_bytes;  // by rank, over its link or network
  std::vector<Interval> timeline;  // if requested
};

// The plan must be proved. Errors: INVALID_ARGUMENT if the machine has fewer GPUs than the plan ranks, or if the plan
// cannot complete.
ncast_status simulate(const Plan& lowered, const Machine& machine, const Options& options, Prediction* prediction);

}  // namespace narrowcast::plan::simulate
