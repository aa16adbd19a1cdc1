#include "nccl/calls/launch.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <string>

#include "nccl/calls/nvtx_range.h"
#include "nccl/calls/recorded_launch.h"
#include "nccl/calls/verify.h"
#include "nccl/libraries/backend.h"
#include "nccl/libraries/cuda_driver.h"
#include "nccl/libraries/engine.h"
#include "nccl/policy/decision.h"
#include "nccl/report/log.h"
#include "nccl/settings/text.h"

namespace narrowcast::nccl {
namespace {

// The distinct streams of all calls of the group.
std::vector<void*> streams_of(const EngineCalls& group) {
  std::vector<void*> streams;
  const auto add = [&](void* stream) {
    if (std::ranges::find(streams, stream) == streams.end()) streams.push_back(stream);
  };
  std::ranges::for_each(group.forwarded_on, add);
  for (const EngineCall& one : group.calls) add(one.call.stream);
  return streams;
}

// Makes `to` wait for everything that is on `from`.
int make_wait(Communicator& comm, void* from, void* to) {
  if (from == to) return 0;
  if (const int failed = driver()->cuEventRecord(comm.side_event, from)) return failed;
  return driver()->cuStreamWaitEvent(to, comm.side_event, 0);
}

CallShape shape_of(const EngineCall& one, const Communicator& comm) {
  return nccl::shape_of(one.call, one.call.operation, comm.ranks, comm.has_windows.load());
}

// Counts a transfer at its sender only: a rank that sends and receives in one group saves the time once.
std::optional<double> saved_by(Communicator& comm, const EngineCall& one, const CallShape& shape) {
  if (settings().stats.empty() || shape.operation == NCAST_OP_RECV) return std::nullopt;
  return saved_microseconds(shape, one.codec, predictor_of(comm));
}

// Whether nothing was logged yet about what enables a codec.
bool is_first_use(const std::string& rule) {
  static std::mutex& mutex = *new std::mutex;
  static auto& used = *new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return used.insert(rule).second;
}

// Counts calls whose codec is not exact, because of a rule or of their plan. A rule only allows a codec: the engine may
// send raw values.
void count_lossy(Communicator& comm, const EngineCall& one, uint64_t calls, const CallShape& shape) {
  const ncast_codec allowed = lossy_codec(one.codec, one.result_codec);
  if (is_exact(allowed) && settings().plan_files.empty()) return;
  const EnginePredictor& predictor = predictor_of(comm);
  const auto codec = codec_of(shape, allowed, predictor);
  if (!codec || is_exact(*codec)) return;
  // Without a setting that names it, only a plan of the user has such a codec.
  const std::string rule =
      is_exact(allowed) ? std::string("plan ") + plan_of(shape, allowed, predictor) : std::string(one.codec_from);
  const std::string name = codec_text(*codec);
  comm.statistics->count_lossy(one.call.operation, calls, rule, name);
  if (comm.rank == 0 && is_first_use(rule))
    log(Level::warn, "%s: calls use the codec %s, which is not exact. The first is %s of %zu values between %d ranks",
        rule.c_str(), name.c_str(), name_of(shape.operation), shape.count, comm.ranks);
}

// calls: how many there are that are like `one`.
void count(Communicator& comm, const EngineCall& one, uint64_t calls, bool is_captured) {
  const Operation operation = one.call.operation;
  const CallShape shape = shape_of(one, comm);
  count_lossy(comm, one, calls, shape);
  if (is_captured)
    comm.statistics->count_captured(operation, calls);
  else
    comm.statistics->count_taken(operation, calls, saved_by(comm, one, shape));
  if (settings().plan_files.empty() || is_point_to_point(operation)) return;
  if (const char* const plan = plan_of(shape, one.codec, predictor_of(comm)))
    comm.statistics->count_plan(operation, calls, plan);
}

// Counts calls that are alike together.
void count(const EngineCalls& group, bool is_captured) {
  Communicator& comm = *group.comm;
  if (is_captured) comm.captured.store(true);
  for (auto first = group.calls.begin(), next = first; first != group.calls.end(); first = next) {
    next = std::find_if(first + 1, group.calls.end(), [&](const EngineCall& one) {
      return one.call.operation != first->call.operation || !are_alike(one.call, first->call);
    });
    count(comm, *first, static_cast<uint64_t>(next - first), is_captured);
  }
}

// Single calls outside of graphs are timed, because predictions are those of single calls.
void begin_timing(Communicator& comm, const EngineCall& one) {
  comm.timer.begin(one.call.operation, one.call.stream,
                   [&] { return predicted_microseconds(shape_of(one, comm), one.codec, predictor_of(comm)); });
}

// stream_of(group, call): the stream of a call.
template <typename StreamOf>
ncast_status submit_all(const std::vector<EngineCalls>& groups, StreamOf&& stream_of) {
  const Engine& narrowcast = *engine();
  narrowcast.ncast_group_start();
  for (const EngineCalls& group : groups) {
    ncast_comm* const comm = group.comm->engine_comm.load();
    // If a call is rejected, ncast_group_end() fails.
    for (const EngineCall& one : group.calls)
      run_on_engine(one.call, one.codec, one.result_codec, comm, stream_of(group, one.call));
  }
  return narrowcast.ncast_group_end();
}

void* stream_of(const EngineCalls& group, const Call& call) {
  return group.uses_side_stream() ? group.comm->side_stream : call.stream;
}

// The engine rejects an all-to-all in place and NCCL does not, so its input is copied first. Only this rank knows its
// addresses: they cannot be a reason to forward.
class CopiedInputs {
 public:
  // Replaces the inputs of such calls by copies. Returns a CUresult.
  int copy(std::vector<EngineCalls>& groups) {
    for (EngineCalls& group : groups)
      for (EngineCall& one : group.calls)
        if (const int failed = is_in_place(one.call, group.comm->ranks) ? copy(group, one.call) : 0) return failed;
    return 0;
  }
  // Call this after the calls, and all other work that reads these inputs, have been put on their streams.
  void free() const {
    for (const Copy& one : copies_) {
      const DeviceGuard guard(one.device);
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
  int copy(const EngineCalls& group, Call& call) {
    const DeviceGuard guard(group.comm->device);
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

void abort_engine(const std::vector<EngineCalls>& groups) {
  for (const EngineCalls& group : groups)
    if (ncast_comm* const comm = group.comm->engine_comm.load()) engine()->ncast_comm_abort(comm);
}

// The engine may reject a call because of addresses, which only this rank knows. The other ranks would wait for the
// call indefinitely.
void abort_rejected(const std::vector<EngineCalls>& groups, ncast_status status) {
  if (status == NCAST_INVALID_ARGUMENT || status == NCAST_UNSUPPORTED) abort_engine(groups);
}

// Host backend: a host function on the stream runs the calls.
void run_on_host(void* context) {
  const std::unique_ptr<std::vector<EngineCalls>> groups(static_cast<std::vector<EngineCalls>*>(context));
  const ncast_status status = submit_all(*groups, [](const EngineCalls&, const Call&) { return nullptr; });
  if (status == NCAST_OK) return;
  report_engine_error(status, "a call on a stream");
  // The program has no other way to learn of this than CommGetAsyncError, and the engine knows nothing of calls that it
  // refused because a peer had failed.
  abort_engine(*groups);
}

// One host function makes all calls, because another rank's group may wait for all of them together.
int launch_on_host(const std::vector<EngineCalls>& groups) {
  void* const first = stream_of(groups[0], groups[0].calls[0].call);
  const auto each_stream = [&](auto&& act) {
    for (const EngineCalls& group : groups)
      for (const EngineCall& one : group.calls)
        if (const int failed = act(*group.comm, stream_of(group, one.call))) return failed;
    return 0;
  };
  int failed = each_stream([&](Communicator& comm, void* stream) { return make_wait(comm, stream, first); });
  if (failed == 0) {
    // A graph may run the function repeatedly, so it must not free the context.
    const bool captured = capture_id(first) != 0;
    auto* const context = new std::vector<EngineCalls>(groups);
    const auto run_again = [](void* kept) {
      run_on_host(new std::vector<EngineCalls>(*static_cast<std::vector<EngineCalls>*>(kept)));
    };
    failed = driver()->cuLaunchHostFunc(first, captured ? +run_again : run_on_host, context);
  }
  if (failed == 0)
    failed = each_stream([&](Communicator& comm, void* stream) { return make_wait(comm, first, stream); });
  return failed == 0 ? success : unhandled_cuda_error;
}

// Orders the group after the calls that were forwarded before it.
int wait_for_forwarded(const EngineCalls& group) {
  for (void* const stream : streams_of(group))
    if (group.comm->order.before_engine(stream) != 0) return unhandled_cuda_error;
  return success;
}

}  // namespace

int launch_on_engine(std::vector<EngineCalls>& groups) {
  const NvtxRange range(groups);
  bool is_captured = false;
  for (const EngineCalls& group : groups) {
    Communicator& comm = *group.comm;
    const DeviceGuard guard(comm.device);
    if (!group.uses_side_stream() && wait_for_forwarded(group) != success) return unhandled_cuda_error;
    // The engine joins the streams, so all or none of them are captured.
    is_captured = capture_id(group.calls[0].call.stream) != 0;
    count(group, is_captured);
    for (const EngineCall& one : group.calls) {
      log(Level::trace, "%s of %zu values by Narrowcast", name_of(one.call.operation), one.call.count);
      record_call(comm, one.call, true);
      if (settings().verify) verify_codec(comm, one);
    }
  }
  CopiedInputs copied;
  int result = copied.copy(groups) == 0 ? success : unhandled_cuda_error;
  if (groups[0].is_single && !is_captured) begin_timing(*groups[0].comm, groups[0].calls[0]);
  if (result != success) {
    // Nothing is launched.
  } else if (backend.id == NCAST_BACKEND_HOST) {
    result = launch_on_host(groups);
  } else if (const ncast_status status = submit_all(groups, stream_of); status != NCAST_OK) {
    result = report_engine_error(status, "calls on the engine");
    abort_rejected(groups, status);
  }
  for (const EngineCalls& group : groups) {
    const DeviceGuard guard(group.comm->device);
    group.comm->timer.end(group.calls[0].call.stream);
    // The engine joins the streams of a group, so one of them is enough.
    if (group.comm->order.after_engine(stream_of(group, group.calls[0].call)) != 0) result = unhandled_cuda_error;
  }
  if (settings().verify && groups[0].is_single && result == success) verify_result(*groups[0].comm, groups[0].calls[0]);
  copied.free();
  return result;
}

int fork_side_stream(const EngineCalls& group) {
  Communicator& comm = *group.comm;
  const DeviceGuard guard(comm.device);
  if (wait_for_forwarded(group) != success) return unhandled_cuda_error;
  for (void* const stream : streams_of(group))
    if (make_wait(comm, stream, comm.side_stream) != 0) return unhandled_cuda_error;
  // NCCL joins the streams of a group: it is enough that one of them waits.
  return make_wait(comm, comm.side_stream, group.forwarded_on[0]) == 0 ? success : unhandled_cuda_error;
}

int join_side_stream(const EngineCalls& group) {
  Communicator& comm = *group.comm;
  const DeviceGuard guard(comm.device);
  if (make_wait(comm, group.forwarded_on[0], comm.side_stream) != 0) return unhandled_cuda_error;
  for (void* const stream : streams_of(group))
    if (make_wait(comm, comm.side_stream, stream) != 0) return unhandled_cuda_error;
  return success;
}

}  // namespace narrowcast::nccl
