// Runs calls on the engine.
#pragma once

#include <memory>
#include <vector>

#include "nccl/abi/call.h"
#include "nccl/ranks/communicator.h"

namespace narrowcast::nccl {

struct TakenCall {
  Call call;
  ncast_codec codec;
};

// Of one communicator and one group.
struct TakenCalls {
  std::shared_ptr<Communicator> comm;
  std::vector<TakenCall> calls = {};
  // Streams of the group's calls that are forwarded. Where there are any, those that are taken run beside them: the order of
  // transfers among the ranks' groups is free.
  std::vector<CudaStream> forwarded_on = {};
  bool alone = false;  // one call, outside of any group

  bool runs_beside() const { return !calls.empty() && !forwarded_on.empty(); }
};

// Puts calls on their streams as one group. An ncclResult_t.
int take(std::vector<TakenCalls> groups);

// For a group that runs beside forwarded calls: before these are forwarded.
int fork_beside(const TakenCalls& group);
// After they were, and it was taken: its streams go on when both are done.
int join_beside(const TakenCalls& group);

}  // namespace narrowcast::nccl
