// What becomes of a communicator's calls of one group: decided by what all its ranks know.
#pragma once

#include <memory>
#include <vector>

#include "nccl/abi/call.h"
#include "nccl/calls/launch.h"
#include "nccl/ranks/communicator.h"

namespace narrowcast::nccl {

// Which of a group's calls go to NCCL as they come.
enum class AsTheyCome : uint8_t { none, collectives, all };

// A communicator's calls of one group, or one call alone.
struct GroupCalls {
  std::shared_ptr<Communicator> comm;
  std::vector<Call> calls = {};  // kept until the group's end
  AsTheyCome as_they_come = AsTheyCome::none;
  std::vector<CudaStream> forwarded_on = {};  // streams of the calls that went to NCCL as they came
};

struct ForwardedCall {
  Call call;
  const char* why;
};

struct Plan {
  std::shared_ptr<Communicator> comm;
  TakenCalls taken;
  std::vector<ForwardedCall> forwarded;
  bool ordered;  // the communicator's forwarded calls are to keep their order with taken ones
};

// Whether the ranks must come to one mind, or to an engine, before the calls: at a collective, which all of them make, or where
// two meet. They attach never while one of them captures.
bool needs_preparation(const GroupCalls& its);
void prepare(GroupCalls& its);

Plan make_plan(GroupCalls& its);

// Of a valid call alone that needs nothing before NCCL has it, nor after: why it goes there. NULL: make a plan.
const char* why_forwarded_at_once(const Communicator& comm, const Call& call);

// Of a call that cannot wait for the end of its group, or is not valid; `otherwise` where neither the communicator nor the
// call is the reason.
const char* why_forwarded_now(const Communicator& comm, const Call& call, const char* otherwise);

}  // namespace narrowcast::nccl
