#include "nccl/calls/launch.h"

#include <algorithm>

#include "nccl/calls/nvtx_range.h"
#include "nccl/calls/verify.h"
#include "nccl/libraries/backend.h"
#include "nccl/libraries/cuda_driver.h"
#include "nccl/libraries/engine.h"
#include "nccl/policy/cost_prediction.h"
#include "nccl/report/log.h"

namespace narrowcast::nccl {
namespace {

// Of all the group's calls.
std::vector<void*> streams_of(const TakenCalls& group) {
  std::vector<void*> all = group.forwarded_on, streams;
  for (const TakenCall& one : group.calls) all.push_back(one.call.stream);
  for (void* const stream : all)
    if (std::ranges::find(streams, stream) == streams.end()) streams.push_back(stream);
  return streams;
}

// `to` goes on after what is on `from`.
int follow(Communicator& comm, void* from, void* to) {
  if (from == to) return 0;
  if (const int failed = driver()->cuEventRecord(comm.side_event, from)) return failed;
  return driver()->cuStreamWaitEvent(to, comm.side_event, 0);
}

ncast_status submit(const TakenCall& taken, ncast_comm* comm, ncast_stream stream) {
  const Engine& narrowcast = *engine();
  const Call& c = taken.call;
  const auto dtype = static_cast<ncast_dtype>(c.dtype);
  const auto op = static_cast<ncast_redop>(c.redop);
  const ncast_codec codec = taken.codec;
  switch (c.operation) {
    case NCAST_OP_SEND: return narrowcast.ncast_send(c.send, c.count, dtype, c.peer, codec, comm, stream);
    case NCAST_OP_RECV: return narrowcast.ncast_recv(c.recv, c.count, dtype, c.peer, codec, comm, stream);
    case NCAST_OP_BROADCAST:
      return narrowcast.ncast_broadcast(c.send, c.recv, c.count, dtype, c.peer, codec, comm, stream);
    case NCAST_OP_REDUCE:
      return narrowcast.ncast_reduce(c.send, c.recv, c.count, dtype, op, c.peer, codec, comm, stream);
    case NCAST_OP_GATHER: return narrowcast.ncast_gather(c.send, c.recv, c.count, dtype, c.peer, codec, comm, stream);
    case NCAST_OP_SCATTER: return narrowcast.ncast_scatter(c.send, c.recv, c.count, dtype, c.peer, codec, comm, stream);
    case NCAST_OP_ALL_GATHER: return narrowcast.ncast_all_gather(c.send, c.recv, c.count, dtype, codec, comm, stream);
    case NCAST_OP_ALL_TO_ALL: return narrowcast.ncast_all_to_all(c.send, c.recv, c.count, dtype, codec, comm, stream);
    case NCAST_OP_REDUCE_SCATTER:
      return narrowcast.ncast_reduce_scatter(c.send, c.recv, c.count, dtype, op, codec, comm, stream);
    case NCAST_OP_ALL_REDUCE:
      return narrowcast.ncast_all_reduce(c.send, c.recv, c.count, dtype, op, codec, comm, stream);
    case NCAST_OP_ALL_TO_ALL_V: break;  // NCCL has none
  }
  return NCAST_INTERNAL;
}

// Of transfers at their sender: who sends and receives in one group waits once.
std::optional<double> saved_by(const Communicator& comm, const TakenCall& taken) {
  const Call& c = taken.call;
  if (settings().stats.empty() || c.operation == NCAST_OP_RECV) return std::nullopt;
  const CallShape shape{c.operation, static_cast<ncast_dtype>(c.dtype), c.count, comm.ranks};
  return microseconds_saved(shape, taken.codec, EnginePredictor(comm.engine_comm.load(), comm.has_windows.load()));
}

void count(Communicator& comm, const TakenCall& taken) {
  const Operation operation = taken.call.operation;
  if (capture_of(taken.call.stream) == 0)
    comm.statistics->count_taken(operation, saved_by(comm, taken));
  else
    comm.statistics->count_captured(operation);
}

// stream_of(group, call): where it runs.
template <typename StreamOf>
ncast_status submit_all(const std::vector<TakenCalls>& groups, StreamOf&& stream_of) {
  const Engine& narrowcast = *engine();
  narrowcast.ncast_group_start();
  for (const TakenCalls& group : groups) {
    ncast_comm* const comm = group.comm->engine_comm.load();
    // What is refused makes the end of the group fail.
    for (const TakenCall& taken : group.calls) submit(taken, comm, stream_of(group, taken.call));
  }
  return narrowcast.ncast_group_end();
}

void* stream_of(const TakenCalls& group, const Call& call) {
  return group.runs_beside() ? group.comm->side_stream : call.stream;
}

// NCCL does not refuse an all-to-all in place, as the engine does: its input is copied first. Where a rank's buffers lie is
// known to it alone, so that it cannot be a reason to forward.
class CopiedInputs {
 public:
  // From here on the calls of these groups may have other inputs. A CUresult.
  int copy(std::vector<TakenCalls>& groups) {
    for (TakenCalls& group : groups)
      for (TakenCall& taken : group.calls)
        if (const int failed = is_in_place(taken.call, group.comm->ranks) ? copy(group, taken.call) : 0) return failed;
    return 0;
  }
  // Once the calls, and what reads their inputs again, are on their streams.
  void free() const {
    for (const Copy& one : copies_) {
      const OnDevice on_device(one.device);
      driver()->cuMemFreeAsync(one.memory, one.stream);
    }
  }

 private:
  struct Copy {
    int device;
    void* memory;
    void* stream;
  };

  static size_t bytes_of(const Call& call, int ranks) {
    return call.count * value_bytes(call.dtype) * static_cast<size_t>(ranks);
  }
  static bool is_in_place(const Call& call, int ranks) {
    const auto send = reinterpret_cast<uintptr_t>(call.send), recv = reinterpret_cast<uintptr_t>(call.recv);
    const size_t bytes = bytes_of(call, ranks);
    return call.operation == NCAST_OP_ALL_TO_ALL && send < recv + bytes && recv < send + bytes;
  }
  int copy(const TakenCalls& group, Call& call) {
    const OnDevice on_device(group.comm->device);
    void* const stream = stream_of(group, call);
    const size_t bytes = bytes_of(call, group.comm->ranks);
    void* memory = nullptr;
    if (const int failed = driver()->cuMemAllocAsync(&memory, bytes, stream)) return failed;
    copies_.push_back({group.comm->device, memory, stream});
    if (const int failed = driver()->cuMemcpyDtoDAsync_v2(memory, call.send, bytes, stream)) return failed;
    call.send = memory;
    return 0;
  }

  std::vector<Copy> copies_;
};

// What lies where is known to one rank alone: the others of a call that is refused here would wait for ever.
void end_refused(const std::vector<TakenCalls>& groups, ncast_status status) {
  if (status != NCAST_INVALID_ARGUMENT && status != NCAST_UNSUPPORTED) return;
  for (const TakenCalls& group : groups)
    if (ncast_comm* const comm = group.comm->engine_comm.load()) engine()->ncast_comm_abort(comm);
}

// The host backend: a function on a stream runs the calls when their turn comes.
void run_on_host(void* context) {
  const std::unique_ptr<std::vector<TakenCalls>> groups(static_cast<std::vector<TakenCalls>*>(context));
  const ncast_status status = submit_all(*groups, [](const TakenCalls&, const Call&) { return nullptr; });
  if (status == NCAST_OK) return;
  report_engine_error(status, "a call on a stream");
  end_refused(*groups, status);
}

// One function for all of them: together they may be what another rank's group waits for.
int launch_on_host(const std::vector<TakenCalls>& groups) {
  void* const first = stream_of(groups[0], groups[0].calls[0].call);
  const auto each_stream = [&](auto&& act) {
    for (const TakenCalls& group : groups)
      for (const TakenCall& taken : group.calls)
        if (const int failed = act(*group.comm, stream_of(group, taken.call))) return failed;
    return 0;
  };
  int failed = each_stream([&](Communicator& comm, void* stream) { return follow(comm, stream, first); });
  if (failed == 0) {
    // A graph runs it again: it keeps what it runs with.
    const bool captured = capture_of(first) != 0;
    auto* const context = new std::vector<TakenCalls>(groups);
    const auto run_again = [](void* kept) {
      run_on_host(new std::vector<TakenCalls>(*static_cast<std::vector<TakenCalls>*>(kept)));
    };
    failed = driver()->cuLaunchHostFunc(first, captured ? +run_again : run_on_host, context);
  }
  if (failed == 0) failed = each_stream([&](Communicator& comm, void* stream) { return follow(comm, first, stream); });
  return failed == 0 ? success : unhandled_cuda_error;
}

// After the calls that were forwarded before this group.
int come_after_forwarded(const TakenCalls& group) {
  for (void* const stream : streams_of(group))
    if (group.comm->order.before_taken(stream) != 0) return unhandled_cuda_error;
  return success;
}

}  // namespace

int take(std::vector<TakenCalls> groups) {
  const Range range(groups);
  for (const TakenCalls& group : groups) {
    Communicator& comm = *group.comm;
    const OnDevice on_device(comm.device);
    if (!group.runs_beside() && come_after_forwarded(group) != success) return unhandled_cuda_error;
    for (const TakenCall& taken : group.calls) {
      log(Level::trace, "%s of %zu values is taken", name_of(taken.call.operation), taken.call.count);
      count(comm, taken);
      if (settings().verify) verify_codec(comm, taken);
    }
  }
  CopiedInputs copied;
  int result = copied.copy(groups) == 0 ? success : unhandled_cuda_error;
  if (result != success) {
    // Nothing of it is done.
  } else if (backend.id == NCAST_BACKEND_HOST) {
    result = launch_on_host(groups);
  } else if (const ncast_status status = submit_all(groups, stream_of); status != NCAST_OK) {
    result = report_engine_error(status, "taken calls");
    end_refused(groups, status);
  }
  for (const TakenCalls& group : groups) {
    const OnDevice on_device(group.comm->device);
    // The engine joins the streams of a group.
    if (group.comm->order.after_taken(stream_of(group, group.calls[0].call)) != 0) result = unhandled_cuda_error;
  }
  if (settings().verify && groups[0].alone && result == success)
    verify_arrival(*groups[0].comm, groups[0].calls[0].call);
  copied.free();
  return result;
}

int fork_beside(const TakenCalls& group) {
  const OnDevice on_device(group.comm->device);
  if (come_after_forwarded(group) != success) return unhandled_cuda_error;
  for (void* const stream : streams_of(group))
    if (follow(*group.comm, stream, group.comm->side_stream) != 0) return unhandled_cuda_error;
  // NCCL joins the streams of what it is given: one of them comes after those of what is taken.
  return follow(*group.comm, group.comm->side_stream, group.forwarded_on[0]) == 0 ? success : unhandled_cuda_error;
}

int join_beside(const TakenCalls& group) {
  const OnDevice on_device(group.comm->device);
  if (follow(*group.comm, group.forwarded_on[0], group.comm->side_stream) != 0) return unhandled_cuda_error;
  for (void* const stream : streams_of(group))
    if (follow(*group.comm, group.comm->side_stream, stream) != 0) return unhandled_cuda_error;
  return success;
}

}  // namespace narrowcast::nccl
