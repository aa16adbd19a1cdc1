#include "nccl/calls/group.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "nccl/calls/group_plan.h"
#include "nccl/calls/launch.h"
#include "nccl/calls/nvtx_range.h"
#include "nccl/calls/recorded_launch.h"
#include "nccl/calls/user_reductions.h"
#include "nccl/libraries/cuda_driver.h"
#include "nccl/libraries/forward.h"
#include "nccl/libraries/real_nccl.h"
#include "nccl/ranks/attach.h"
#include "nccl/ranks/attach_at_creation.h"
#include "nccl/report/log.h"

namespace narrowcast::nccl {
namespace {

using End = int();

// A communicator that is created in a group. NCCL has given its handle, or writes it at the end of the group.
struct Created {
  Comm handle;
  const Comm* later;  // NULL: handle is valid
  CommunicatorConfig config;
  bool attach;

  Comm final_handle() const { return later != nullptr ? *later : handle; }
};

struct Group {
  int depth = 0;
  std::vector<GroupCalls> comms;
  std::vector<Created> created;
  std::vector<std::shared_ptr<Communicator>> suspended, resumed;
  std::vector<std::pair<int, Comm>> destroyed;  // reductions that held calls may use
};

thread_local Group open_group;

void keep_first(int result, int* first) {
  if (result != success && (*first == success || *first == in_progress)) *first = result;
}

GroupCalls& calls_of(const std::shared_ptr<Communicator>& comm) {
  auto& comms = open_group.comms;
  const auto found = std::ranges::find(comms, comm, &GroupCalls::comm);
  return found != comms.end() ? *found : comms.emplace_back(GroupCalls{.comm = comm});
}

// Whether a call can be held until the end of its group. A configuration might be freed by then, and so might a
// user-defined reduction unless it is a pre-multiplied sum, which destroy_reduction() keeps. The same on all ranks.
bool can_wait(const Call& call) {
  const bool is_own = !reduces(call.operation) || call.redop < first_user_reduction || call.factor;
  return call.config == nullptr && is_own;
}

int destroy_now(int redop, Comm comm) {
  forget_factor(comm, redop);
  const InsideNccl inside;
  return real<int(int, Comm)>(Function::RedOpDestroy)(redop, comm);
}

// Invalid calls are passed to NCCL, which reports the error.
bool is_valid(const Call& call, int ranks) {
  const bool has_peer = is_point_to_point(call.operation) || has_root(call.operation);
  return value_bytes(call.dtype) != 0 && call.redop >= 0 && (!has_peer || (call.peer >= 0 && call.peer < ranks));
}

int forward_counted(Communicator& comm, const Call& call, const char* why) {
  comm.statistics->count_forwarded(call.operation, why);
  record_call(comm, call, false);
  log(Level::trace, "%s of %zu values to NCCL: %s", name_of(call.operation), call.count, why);
  const NvtxRange range(call, why);
  return forward(call);
}

int forward_immediately(GroupCalls& group, const Call& call, const char* why) {
  int first = success;
  if (group.comm->attached()) {
    const DeviceGuard guard(group.comm->device);
    if (group.comm->order.before_nccl(call.stream) != 0) first = unhandled_cuda_error;
    group.forwarded_on.push_back(call.stream);
  }
  keep_first(forward_counted(*group.comm, call, why), &first);
  return first;
}

bool is_immediate(const GroupCalls& group, const Call& call) {
  return group.immediate == Immediate::all ||
         (group.immediate == Immediate::collectives && !is_point_to_point(call.operation));
}

// From now on these calls of the group go to NCCL immediately, including those held so far.
int forward_held(GroupCalls& group, Immediate which, const char* why) {
  int first = success;
  group.immediate = std::max(group.immediate, which);
  for (const Call& call : std::exchange(group.calls, {})) {
    if (is_immediate(group, call))
      keep_first(forward_immediately(group, call, why), &first);
    else
      group.calls.push_back(call);
  }
  return first;
}

// Transfers are held even if the group has a call that cannot wait: the peer may make them in a group without such a
// call.
int add_to_group(const std::shared_ptr<Communicator>& comm, const Call& call) {
  GroupCalls& group = calls_of(comm);
  const bool rejected = !is_valid(call, comm->ranks) || comm->why_forwarded.load() != nullptr;
  if (can_wait(call) && !rejected && !is_immediate(group, call)) {
    group.calls.push_back(call);
    return success;
  }
  constexpr const char* why_others = "its group has a call that cannot wait";
  int first = forward_held(group, rejected ? Immediate::all : Immediate::collectives, why_others);
  keep_first(forward_immediately(group, call, why_forwarded_immediately(*comm, call, why_others)), &first);
  return first;
}

// Uses one thread per communicator, because ranks in one process may wait for each other. In a group this thread cannot
// do the work itself, because it has NCCL's group open.
void prepare_all(std::vector<GroupCalls>& groups, bool grouped) {
  std::vector<std::thread> threads;
  for (GroupCalls& group : groups) {
    if (!needs_preparation(group)) continue;
    if (grouped)
      threads.emplace_back([&group] { prepare(group); });
    else
      prepare(group);
  }
  for (std::thread& thread : threads) thread.join();
}

// Drops the calls of a broken rank, and of a communicator that was aborted while its ranks waited for each other: NCCL
// may have freed the handle.
int drop_calls(GroupCalls& group) {
  const Communicator& comm = *group.comm;
  if (comm.broken.load()) return std::exchange(group.calls, {}).empty() ? success : unhandled_cuda_error;
  if (!comm.aborted.load() || std::exchange(group.calls, {}).empty()) return success;
  log(Level::warn, "rank %d of %d drops calls: the communicator was aborted", comm.rank, comm.ranks);
  return internal_error;
}

int order_before_nccl(const GroupPlan& plan) {
  const DeviceGuard guard(plan.comm->device);
  for (const ForwardedCall& one : plan.forwarded)
    if (plan.comm->order.before_nccl(one.call.stream) != 0) return unhandled_cuda_error;
  return success;
}

// NCCL has joined the streams of the communicator's group, so one of them is enough.
int order_after_nccl(Communicator& comm, CudaStream stream) {
  const DeviceGuard guard(comm.device);
  return comm.order.after_nccl(stream) == 0 ? success : unhandled_cuda_error;
}

// Not during a capture, which must not wait for a file.
void write_statistics_after(CudaStream stream) {
  if (settings().stats_seconds > 0 && driver() != nullptr && capture_id(stream) == 0) write_statistics_when_due();
}

// end: ends NCCL's group; NULL for a single call.
int launch(std::vector<GroupCalls> groups, const std::function<End>& end) {
  prepare_all(groups, end != nullptr);
  std::vector<GroupPlan> plans;
  std::vector<EngineCalls> on_engine, on_side_stream;
  int first = success;
  for (GroupCalls& group : groups) {
    keep_first(drop_calls(group), &first);
    if (group.calls.empty()) continue;
    GroupPlan& plan = plans.emplace_back(make_plan(group));
    if (plan.keeps_order && !plan.forwarded.empty()) keep_first(order_before_nccl(plan), &first);
    plan.on_engine.is_single = end == nullptr;
    if (plan.on_engine.uses_side_stream()) keep_first(fork_side_stream(plan.on_engine), &first);
    if (!plan.on_engine.calls.empty())
      (plan.on_engine.uses_side_stream() ? on_side_stream : on_engine).push_back(std::move(plan.on_engine));
  }
  // At the first transfer between two ranks, NCCL waits on the host for this GPU, including our kernels. These may wait
  // for a peer that waits for this transfer. So our transfers are launched last if other calls of the same communicator
  // are forwarded. All other calls come first, in the same order on all ranks. Transfers cannot have a common position
  // in this order, because only their two ranks know about them.
  if (!on_engine.empty()) keep_first(launch_on_engine(on_engine), &first);
  for (const GroupPlan& plan : plans)
    for (const ForwardedCall& one : plan.forwarded) keep_first(forward_counted(*plan.comm, one.call, one.why), &first);
  if (end != nullptr) keep_first(end(), &first);
  if (!on_side_stream.empty()) keep_first(launch_on_engine(on_side_stream), &first);
  for (const GroupCalls& group : groups)
    if (!group.forwarded_on.empty()) keep_first(order_after_nccl(*group.comm, group.forwarded_on[0]), &first);
  for (const GroupPlan& plan : plans)
    if (plan.keeps_order && !plan.forwarded.empty())
      keep_first(order_after_nccl(*plan.comm, plan.forwarded[0].call.stream), &first);
  for (const EngineCalls& group : on_side_stream) keep_first(join_side_stream(group), &first);
  return first;
}

// For a single call that could not be held in a group. The ranks prepare for it nevertheless, because another rank may
// make it in a group.
int forward_single(const std::shared_ptr<Communicator>& comm, const Call& call) {
  GroupCalls group{.comm = comm, .calls = {call}, .immediate = Immediate::all};
  if (needs_preparation(group)) prepare(group);
  if (const int dropped = drop_calls(group)) return dropped;
  int first = forward_immediately(group, call, why_forwarded_immediately(*comm, call, "it cannot wait"));
  if (!group.forwarded_on.empty()) keep_first(order_after_nccl(*comm, call.stream), &first);
  return first;
}

void finish_creation(const std::vector<Created>& created) {
  std::vector<Comm> attaching;
  for (const Created& one : created) {
    remember_config(one.final_handle(), one.config);
    if (one.attach) attaching.push_back(one.final_handle());
  }
  attach_at_creation(attaching);
}

// False if no group is open: NCCL then reports the error.
bool leaves_outermost_group() {
  if (InsideNccl::active() || open_group.depth == 0) return false;
  --open_group.depth;
  return open_group.depth == 0;
}

}  // namespace

int submit(const Call& given) {
  if (InsideNccl::active()) return forward(given);
  Call call = given;
  call.factor = factor_of(given);
  const std::shared_ptr<Communicator> comm = find_or_add_communicator(call.comm);
  if (comm == nullptr) return forward(call);
  if (comm->broken.load()) return unhandled_cuda_error;
  if (open_group.depth > 0) return add_to_group(comm, call);
  const RecordedLaunch recorded(comm, call.stream);
  int result = success;
  if (!is_valid(call, comm->ranks))
    result = forward_counted(*comm, call, why_forwarded_immediately(*comm, call, "an argument is out of range"));
  else if (const char* const why = why_forwarded_directly(*comm, call))
    result = forward_counted(*comm, call, why);
  else if (!can_wait(call))
    result = forward_single(comm, call);
  else
    result = launch({GroupCalls{.comm = comm, .calls = {call}}}, nullptr);
  write_statistics_after(call.stream);
  return result;
}

int start_group() {
  if (!InsideNccl::active()) ++open_group.depth;
  const InsideNccl inside;
  return real<End>(Function::GroupStart)();
}

int end_group() {
  int ended = success;
  const auto end = [&ended] {
    const InsideNccl inside;
    ended = real<End>(Function::GroupEnd)();
    return ended;
  };
  if (!leaves_outermost_group()) return end();
  Group group = std::exchange(open_group, {});
  const CudaStream stream =
      group.comms.empty() || group.comms[0].calls.empty() ? nullptr : group.comms[0].calls[0].stream;
  // In separate threads, because this thread has NCCL's group open.
  for_each_in_threads(group.suspended, suspend);
  const RecordedLaunch recorded(group.comms);
  const int result = launch(std::move(group.comms), end);
  // Also if calls have failed: the other ranks wait for this one.
  if (ended == success) {
    finish_creation(group.created);
    for_each_in_threads(group.resumed, resume);
  }
  for (const auto& [redop, comm] : group.destroyed) destroy_now(redop, comm);
  write_statistics_after(stream);
  return result;
}

int destroy_reduction(int redop, Comm comm) {
  if (InsideNccl::active() || open_group.depth == 0) return destroy_now(redop, comm);
  open_group.destroyed.emplace_back(redop, comm);
  return success;
}

int end_group_by(int (*simulate)(void*), void* argument) {
  if (leaves_outermost_group()) {
    Group simulated = std::exchange(open_group, {});
    for (GroupCalls& group : simulated.comms) forward_held(group, Immediate::all, "the group is only simulated");
    for (const auto& [redop, comm] : simulated.destroyed) destroy_now(redop, comm);
  }
  const InsideNccl inside;
  return simulate(argument);
}

void communicators_created(std::span<Comm> created, const CommunicatorConfig& config, bool attach) {
  std::vector<Created> all;
  for (const Comm& one : created) all.push_back({one, one == nullptr ? &one : nullptr, config, attach});
  if (open_group.depth == 0)
    finish_creation(all);
  else
    open_group.created.insert(open_group.created.end(), all.begin(), all.end());
}

void suspend_in_group(const std::shared_ptr<Communicator>& comm) {
  if (open_group.depth == 0)
    suspend(*comm);
  else
    open_group.suspended.push_back(comm);
}

void resume_in_group(const std::shared_ptr<Communicator>& comm) {
  if (open_group.depth == 0)
    resume(*comm);
  else
    open_group.resumed.push_back(comm);
}

}  // namespace narrowcast::nccl
