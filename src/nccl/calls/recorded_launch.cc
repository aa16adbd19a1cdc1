#include "nccl/calls/recorded_launch.h"

#include "nccl/libraries/cuda_driver.h"

namespace narrowcast::nccl {
namespace {

bool is_in_capture(CudaStream stream) { return capture_id(stream) != 0; }

}  // namespace

void record_call(const Communicator& comm, const Call& call, bool executed) {
  if (!is_recording()) return;
  const bool captured = driver() != nullptr && is_in_capture(call.stream);
  comm.record.add_call(call, static_cast<uint8_t>((executed ? record_executed : 0) | (captured ? record_captured : 0)));
}

RecordedLaunch::RecordedLaunch(const std::shared_ptr<Communicator>& comm, CudaStream stream) {
  if (is_recording()) begin(comm, stream);
}

RecordedLaunch::RecordedLaunch(const std::vector<GroupCalls>& groups) {
  if (!is_recording()) return;
  for (const GroupCalls& group : groups) {
    std::optional<CudaStream> stream;
    if (!group.forwarded_on.empty()) stream = group.forwarded_on[0];
    if (!group.calls.empty()) stream = group.calls[0].stream;
    begin(group.comm, stream);
  }
}

void RecordedLaunch::begin(const std::shared_ptr<Communicator>& comm, std::optional<CudaStream> stream) {
  Launch& launch = launches_.emplace_back(comm);
  if (!stream || driver() == nullptr || !LaunchTimer::is_sampled(comm->record.launch()) || is_in_capture(*stream))
    return;
  const DeviceGuard guard(comm->device);
  comm->launch_timer.begin(comm->record, *stream);
  launch.timed_on = stream;
}

RecordedLaunch::~RecordedLaunch() {
  for (const Launch& launch : launches_) {
    if (launch.timed_on) {
      const DeviceGuard guard(launch.comm->device);
      launch.comm->launch_timer.end(*launch.timed_on);
    }
    launch.comm->record.end_launch();
  }
}

}  // namespace narrowcast::nccl
