// Decisions about calls of communicators of two levels (comm/levels/), which run as calls of others.
#pragma once

#include <vector>

#include "select/decision.h"

namespace narrowcast::select {

// A call of the ranks of a group, or of the ranks with the same index in all groups.
struct Step {
  bool is_between;
  int slot;  // of the part of the call: steps with the same one follow each other
  CallShape shape;
  Decision decision;
};

// The two levels of a communicator. Any thread.
class TwoLevels {
 public:
  virtual ~TwoLevels() = default;
  // Whether the ranks are GPUs; otherwise processes on CPUs.
  virtual bool is_on_gpus() const = 0;
  // Whether steps between groups run beside those within groups.
  virtual bool overlaps() const = 0;
  // The steps of the rank that makes the most: a root, if the operation has one. Sends are those between hosts. Empty:
  // the hosts differ, so that their ranks would not make the same prediction.
  virtual std::vector<Step> steps_of(const CallShape& shape) const = 0;
};

// A prediction is the measured time of such a call, or else that of its steps: the sum of their predicted times, less
// what overlaps. The codec is that of the values between hosts.
Decision decide_two_levels(const CallShape& shape, const Policy& policy);

}  // namespace narrowcast::select
