// Runs calls on the engine.
#pragma once

#include <memory>
#include <vector>

#include "nccl/call.h"
#include "nccl/communicator.h"

namespace narrowcast::nccl {

struct TakenCall {
  Call call;
  ncast_codec codec;
};

// Of one communicator and one group.
struct TakenCalls {
  std::shared_ptr<Communicator> comm;
  std::vector<TakenCall> calls = {};
  // Some transfers of the group are forwarded: these run beside them, for their order among the ranks' groups is free.
  bool beside_forwarded = false;
  bool alone = false;  // one call, outside of any group
};

// Puts calls on their streams as one group. An ncclResult_t.
int take(std::vector<TakenCalls> groups);

// For a group that runs beside forwarded calls: before these are forwarded.
int fork_beside(const TakenCalls& group);
// After they were, and it was taken: its streams go on when both are done.
int join_beside(const TakenCalls& group);

}  // namespace narrowcast::nccl
