// Predicts how long a plan takes on a machine.
//
// Method: a discrete-event simulation with fluid work and transfers. Every group runs its steps for several
// micro-batches at a time, as the warps of a kernel do: a worker stands for some warps of each CTA, and its
// micro-batch for the blocks, or packets, that they have in flight. A step starts when its messages, credits,
// semaphores and dependences have arrived. It first works, at the rate that the CTAs of its group and rank allow, and
// ends after the latencies of its operands; the next payload is loaded in the meantime, if it has arrived. Then its
// output is transferred at the rate of the links while the next step starts, because stores are asynchronous.
//
// The next step waits for the transfer in three cases: if the plan reduces values in slots, because a warp has a
// single buffer for output; if the call is a single micro-batch, which stands for more blocks than rings hold; and if
// the step reads from other ranks.
//
// Groups share CTAs and links equally. The warps of a group also share its CTAs equally, but use a link in the order
// of their sends. CTAs and links are divided again only after all simultaneous events, so that ranks that do the same
// do it at the same time. Calls follow each other, as in a stream (calls.h).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "plan/ir.h"
#include "plan/simulate/machine.h"

namespace narrowcast::plan::simulate {

struct Options {
  uint64_t piece_bytes = 0;     // of `count` values of the call
  double ratio = 1;             // wire bytes / raw bytes of encoded values
  uint32_t max_batches = 32;    // micro-batches; fewer if the parts of a chunk would become short
  uint32_t workers = 8;         // micro-batches that a group runs at a time, at most, if values move in slots
  uint32_t ctas_per_group = 0;  // 0: the groups of a rank share the CTAs of the machine
  // Whether only the first max_batches micro-batches of long calls are simulated, at kernel granularity. The others
  // take as long as the second half of these. Otherwise, or if max_batches is 1, micro-batches become longer.
  bool extrapolates = false;
  bool repeats = false;  // also predicts the time of calls in a row
  // The simulation fails when the first call exceeds this time.
  double most_us = std::numeric_limits<double>::infinity();
  bool records_timeline = false;
};

// A step of a micro-batch, in microseconds from the start of the call.
struct Interval {
  uint32_t rank, group, step, batch;
  double begin, end;
};

struct Activity {
  uint32_t rank, group;
  double busy_us;  // working
};

struct Prediction {
  double microseconds = 0;  // from the start of a call to the end of its last rank
  double repeated_us = 0;   // of each of many calls in a row (calls.h); without Options::repeats, that of one call
  uint32_t batches = 0;
  std::vector<Activity> groups;    // that have steps
  std::vector<double> sent_bytes;  // by rank, over its link or network
  std::vector<Interval> timeline;  // of the first call, if requested
};

// The plan must be proved. Errors: INVALID_ARGUMENT if the machine has fewer GPUs than the plan has ranks, or if the
// plan cannot complete, or not within options.most_us.
ncast_status simulate(const Plan& lowered, const Machine& machine, const Options& options, Prediction* prediction);

}  // namespace narrowcast::plan::simulate
