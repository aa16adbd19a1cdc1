// Decides which calls of a group run on the engine and which go to NCCL. All ranks make the same decision.
#pragma once

#include <memory>
#include <vector>

#include "nccl/abi/call.h"
#include "nccl/calls/launch.h"
#include "nccl/ranks/communicator.h"

namespace narrowcast::nccl {

// Which calls of a group go to NCCL immediately instead of at the group's end.
enum class Immediate : uint8_t { none, collectives, all };

// The calls of one communicator in one group, or a single call.
struct GroupCalls {
  std::shared_ptr<Communicator> comm;
  std::vector<Call> calls = {};  // held until the end of the group
  Immediate immediate = Immediate::none;
  std::vector<CudaStream> forwarded_on = {};  // streams of the calls that went to NCCL immediately
};

struct ForwardedCall {
  Call call;
  const char* why;
};

struct GroupPlan {
  std::shared_ptr<Communicator> comm;
  EngineCalls on_engine;
  std::vector<ForwardedCall> forwarded;
  bool keeps_order;  // forwarded calls must be ordered with calls on the engine
};

// Whether the ranks must agree or attach before these calls. They do so at a collective, which all of them make, or at
// the first common call of two ranks, but never while one of them captures.
bool needs_preparation(const GroupCalls& group);
void prepare(GroupCalls& group);

GroupPlan make_plan(GroupCalls& group);

// For a valid single call: why it can go to NCCL without any preparation or ordering. NULL: make a plan.
const char* why_forwarded_directly(Communicator& comm, const Call& call);

// For a call that cannot wait for the end of its group, or is not valid. `otherwise` is the reason if neither the
// communicator nor the call gives one.
const char* why_forwarded_immediately(Communicator& comm, const Call& call, const char* otherwise);

}  // namespace narrowcast::nccl
