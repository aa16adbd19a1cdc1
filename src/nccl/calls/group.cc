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
#include "nccl/libraries/cuda_driver.h"
#include "nccl/libraries/forward.h"
#include "nccl/libraries/real_nccl.h"
#include "nccl/ranks/attach_at_creation.h"
#include "nccl/report/log.h"

namespace narrowcast::nccl {
namespace {

using End = int();

// A communicator that the end of the group makes: NCCL has given its handle, or gives it then.
struct Made {
  Comm handle;
  const Comm* later;
};

struct Group {
  int depth = 0;
  std::vector<GroupCalls> comms;
  std::vector<Made> made;
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

// Whether a call keeps until the end of its group: what it points to may be gone by then. All ranks have it alike.
bool keeps(const Call& call) {
  return call.config == nullptr && !(reduces(call.operation) && call.redop >= first_user_reduction);
}

// What NCCL refuses is NCCL's to refuse.
bool is_valid(const Call& call, int ranks) {
  const bool has_peer = is_point_to_point(call.operation) || call.operation == NCAST_OP_BROADCAST ||
                        call.operation == NCAST_OP_REDUCE || call.operation == NCAST_OP_GATHER ||
                        call.operation == NCAST_OP_SCATTER;
  return value_bytes(call.dtype) != 0 && call.redop >= 0 && (!has_peer || (call.peer >= 0 && call.peer < ranks));
}

int forward_counted(Communicator& comm, const Call& call, const char* why) {
  comm.statistics->count_forwarded(call.operation, why);
  log(Level::trace, "%s of %zu values to NCCL: %s", name_of(call.operation), call.count, why);
  const Range range(call, why);
  return forward(call);
}

int forward_now(GroupCalls& its, const Call& call, const char* why) {
  int first = success;
  if (its.comm->attached()) {
    const OnDevice on_device(its.comm->device);
    if (its.comm->order.before_forwarded(call.stream) != 0) first = unhandled_cuda_error;
    its.forwarded_on.push_back(call.stream);
  }
  keep_first(forward_counted(*its.comm, call, why), &first);
  return first;
}

bool goes_as_it_comes(const GroupCalls& its, const Call& call) {
  return its.as_they_come == AsTheyCome::all ||
         (its.as_they_come == AsTheyCome::collectives && !is_point_to_point(call.operation));
}

// These calls of the communicator's group go to NCCL, from those that were kept on.
int forward_group(GroupCalls& its, AsTheyCome which, const char* why) {
  int first = success;
  its.as_they_come = std::max(its.as_they_come, which);
  for (const Call& call : std::exchange(its.calls, {})) {
    if (goes_as_it_comes(its, call))
      keep_first(forward_now(its, call, why), &first);
    else
      its.calls.push_back(call);
  }
  return first;
}

// Transfers are kept beside a call that cannot be: another rank may have them in a group without it.
int add_to_group(const std::shared_ptr<Communicator>& comm, const Call& call) {
  GroupCalls& its = calls_of(comm);
  const bool refused = !is_valid(call, comm->ranks) || comm->why_forwarded.load() != nullptr;
  if (keeps(call) && !refused && !goes_as_it_comes(its, call)) {
    its.calls.push_back(call);
    return success;
  }
  constexpr const char* why_others = "its group has a call that cannot wait";
  int first = forward_group(its, refused ? AsTheyCome::all : AsTheyCome::collectives, why_others);
  keep_first(forward_now(its, call, why_forwarded_now(*comm, call, why_others)), &first);
  return first;
}

// One thread a communicator: those of one process may wait for each other, and this thread has a group open.
void prepare_all(std::vector<GroupCalls>& comms, bool grouped) {
  std::vector<std::thread> threads;
  for (GroupCalls& its : comms) {
    if (!needs_preparation(its)) continue;
    if (grouped)
      threads.emplace_back([&its] { prepare(its); });
    else
      prepare(its);
  }
  for (std::thread& thread : threads) thread.join();
}

// Calls whose communicator was aborted while its ranks were waited for: NCCL may have freed the handle. And those of a rank that
// broke off.
int drop_calls(GroupCalls& its) {
  const Communicator& comm = *its.comm;
  if (comm.broken.load()) return std::exchange(its.calls, {}).empty() ? success : unhandled_cuda_error;
  if (!comm.aborted.load() || std::exchange(its.calls, {}).empty()) return success;
  log(Level::warn, "rank %d of %d does without calls: the communicator was aborted", comm.rank, comm.ranks);
  return internal_error;
}

int before_forwarded(const Plan& plan) {
  const OnDevice on_device(plan.comm->device);
  for (const ForwardedCall& one : plan.forwarded)
    if (plan.comm->order.before_forwarded(one.call.stream) != 0) return unhandled_cuda_error;
  return success;
}

// NCCL has joined the streams of a communicator's group: any of them will do.
int after_forwarded(Communicator& comm, CudaStream stream) {
  const OnDevice on_device(comm.device);
  return comm.order.after_forwarded(stream) == 0 ? success : unhandled_cuda_error;
}

// Not while a graph is captured: that need not wait for a file.
void report_when_due(CudaStream stream) {
  if (settings().stats_seconds > 0 && driver() != nullptr && capture_of(stream) == 0) write_statistics_when_due();
}

// `end`: ends NCCL's group; none outside of one.
int launch(std::vector<GroupCalls> comms, const std::function<End>& end) {
  prepare_all(comms, end != nullptr);
  std::vector<Plan> plans;
  std::vector<TakenCalls> taken, beside;
  int first = success;
  for (GroupCalls& its : comms) {
    keep_first(drop_calls(its), &first);
    if (its.calls.empty()) continue;
    Plan& plan = plans.emplace_back(make_plan(its));
    if (plan.ordered && !plan.forwarded.empty()) keep_first(before_forwarded(plan), &first);
    plan.taken.alone = end == nullptr;
    if (plan.taken.runs_beside()) keep_first(fork_beside(plan.taken), &first);
    if (!plan.taken.calls.empty()) (plan.taken.runs_beside() ? beside : taken).push_back(plan.taken);
  }
  // NCCL's thread waits for this GPU when two ranks first transfer something: for kernels of ours, too, which may wait for a
  // peer that waits for the transfer. So transfers of a communicator that are taken come last where some are forwarded beside
  // them. What else is taken comes first, on all ranks alike: of these transfers only their own ranks know.
  if (!taken.empty()) keep_first(take(taken), &first);
  for (const Plan& plan : plans)
    for (const ForwardedCall& one : plan.forwarded) keep_first(forward_counted(*plan.comm, one.call, one.why), &first);
  if (end != nullptr) keep_first(end(), &first);
  if (!beside.empty()) keep_first(take(beside), &first);
  for (const GroupCalls& its : comms)
    if (!its.forwarded_on.empty()) keep_first(after_forwarded(*its.comm, its.forwarded_on[0]), &first);
  for (const Plan& plan : plans) {
    if (plan.ordered && !plan.forwarded.empty())
      keep_first(after_forwarded(*plan.comm, plan.forwarded[0].call.stream), &first);
    if (plan.taken.runs_beside()) keep_first(join_beside(plan.taken), &first);
  }
  return first;
}

// One outside of any group that cannot wait for the end of one: another rank may have it in a group.
int forward_alone(const std::shared_ptr<Communicator>& comm, const Call& call) {
  GroupCalls its{.comm = comm, .calls = {call}, .as_they_come = AsTheyCome::all};
  if (needs_preparation(its)) prepare(its);
  if (const int dropped = drop_calls(its)) return dropped;
  int first = forward_now(its, call, why_forwarded_now(*comm, call, "it cannot wait"));
  if (!its.forwarded_on.empty()) keep_first(after_forwarded(*comm, call.stream), &first);
  return first;
}

std::vector<Comm> handles_of(const std::vector<Made>& made) {
  std::vector<Comm> handles;
  handles.reserve(made.size());
  for (const Made& one : made) handles.push_back(one.later != nullptr ? *one.later : one.handle);
  return handles;
}

// Without a group the end is NCCL's to refuse.
bool leaves_outermost_group() {
  if (InsideNccl::active() || open_group.depth == 0) return false;
  --open_group.depth;
  return open_group.depth == 0;
}

}  // namespace

int submit(const Call& call) {
  if (InsideNccl::active()) return forward(call);
  const std::shared_ptr<Communicator> comm = find_communicator(call.comm);
  if (comm == nullptr) return forward(call);
  if (comm->broken.load()) return unhandled_cuda_error;
  if (open_group.depth > 0) return add_to_group(comm, call);
  int result = success;
  if (!is_valid(call, comm->ranks))
    result = forward_counted(*comm, call, why_forwarded_now(*comm, call, "an argument is out of range"));
  else if (const char* const why = why_forwarded_at_once(*comm, call))
    result = forward_counted(*comm, call, why);
  else if (!keeps(call))
    result = forward_alone(comm, call);
  else
    result = launch({GroupCalls{.comm = comm, .calls = {call}}}, nullptr);
  report_when_due(call.stream);
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
  std::vector<GroupCalls> comms = std::exchange(open_group.comms, {});
  const std::vector<Made> made = std::exchange(open_group.made, {});
  const CudaStream stream = comms.empty() || comms[0].calls.empty() ? nullptr : comms[0].calls[0].stream;
  const int result = launch(std::move(comms), end);
  // Whatever became of the calls: the other ranks wait for this one.
  if (ended == success) attach_at_creation(handles_of(made));
  report_when_due(stream);
  return result;
}

int end_group_by(int (*simulate)(void*), void* argument) {
  if (leaves_outermost_group()) {
    open_group.made.clear();
    for (GroupCalls& its : std::exchange(open_group.comms, {}))
      forward_group(its, AsTheyCome::all, "the group is only simulated");
  }
  const InsideNccl inside;
  return simulate(argument);
}

void attach_when_made(std::span<Comm> made) {
  std::vector<Made> all;
  for (const Comm& one : made) all.push_back({one, one == nullptr ? &one : nullptr});
  if (open_group.depth == 0)
    attach_at_creation(handles_of(all));
  else
    open_group.made.insert(open_group.made.end(), all.begin(), all.end());
}

}  // namespace narrowcast::nccl
