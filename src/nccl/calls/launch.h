// Runs calls on the engine.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "nccl/abi/call.h"
#include "nccl/ranks/communicator.h"

namespace narrowcast::nccl {

struct EngineCall {
  Call call;
  ncast_codec codec;
  std::optional<ncast_codec> result_codec;
  const char* codec_from;  // as in Decision
};

// Calls of one communicator in one group.
struct EngineCalls {
  std::shared_ptr<Communicator> comm;
  std::vector<EngineCall> calls = {};
  // Streams of the group's forwarded calls. If there are any, the engine's calls run concurrently with them on a side
  // stream: the order of transfers may differ between the ranks' groups.
  std::vector<CudaStream> forwarded_on = {};
  bool is_single = false;  // one call, outside of any group

  bool uses_side_stream() const { return !calls.empty() && !forwarded_on.empty(); }
};

// Puts the calls on their streams as one group. Inputs that the engine cannot take are replaced by copies. Returns an
// ncclResult_t.
int launch_on_engine(std::vector<EngineCalls>& groups);

// For a group that uses the side stream: called before its forwarded calls are passed to NCCL.
int fork_side_stream(const EngineCalls& group);
// Called after both parts are launched: makes the group's streams wait for both.
int join_side_stream(const EngineCalls& group);

}  // namespace narrowcast::nccl
