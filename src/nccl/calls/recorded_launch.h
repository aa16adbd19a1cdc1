// Adds calls to the record of NARROWCAST_RECORD. Without it, this costs the test of one pointer.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "nccl/abi/call.h"
#include "nccl/calls/group_plan.h"
#include "nccl/ranks/communicator.h"

namespace narrowcast::nccl {

// When a call is put on its stream. executed: by the engine.
void record_call(const Communicator& comm, const Call& call, bool executed);

// Spans the launch of one call, or of the calls of a group; the calls that are recorded meanwhile belong to it.
class RecordedLaunch {
 public:
  RecordedLaunch(const std::shared_ptr<Communicator>& comm, CudaStream stream);
  explicit RecordedLaunch(const std::vector<GroupCalls>& groups);
  ~RecordedLaunch();
  RecordedLaunch(const RecordedLaunch&) = delete;
  RecordedLaunch& operator=(const RecordedLaunch&) = delete;

 private:
  struct Launch {
    std::shared_ptr<Communicator> comm;
    std::optional<CudaStream> timed_on;
  };
  // stream: one of the launch; nullopt: not known.
  void begin(const std::shared_ptr<Communicator>& comm, std::optional<CudaStream> stream);

  std::vector<Launch> launches_;
};

}  // namespace narrowcast::nccl
