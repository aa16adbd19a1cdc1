#include "nccl/calls/group_plan.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "nccl/libraries/cuda_driver.h"
#include "nccl/policy/decision.h"
#include "nccl/ranks/agreement.h"
#include "nccl/ranks/attach.h"
#include "nccl/report/log.h"

namespace narrowcast::nccl {
namespace {

constexpr const char* not_attached = "the communicator is not attached yet";

bool is_collective(const Call& call) { return !is_point_to_point(call.operation); }

Decision decide(Communicator& comm, const Call& call) {
  return decide(settings(), call, traits_of(comm), predictor_of(comm));
}

bool is_captured(const GroupCalls& group) {
  const DeviceGuard guard(group.comm->device);
  return capture_id(group.calls[0].stream) != 0;
}

bool forwards_collectives(const GroupCalls& group) { return group.immediate != Immediate::none; }

// Whether both of two ranks take part. Calls that went to NCCL immediately count, whatever they were.
bool involves_both_ranks(const GroupCalls& group) {
  return forwards_collectives(group) || std::ranges::any_of(group.calls, [&](const Call& call) {
           return is_collective(call) || call.peer != group.comm->rank;
         });
}

bool needs_handshake(const GroupCalls& group) {
  return group.comm->handshake_pending.load() && involves_both_ranks(group);
}

// A group's collectives are the same on all ranks. Its transfers are not.
bool all_collectives_use_engine(const GroupCalls& group) {
  return std::ranges::all_of(
      group.calls, [&](const Call& call) { return !is_collective(call) || decide(*group.comm, call).use_engine; });
}

bool has_collective_to_prepare(const GroupCalls& group) {
  const Communicator& comm = *group.comm;
  if (comm.why_forwarded.load() != nullptr || comm.attached() || forwards_collectives(group)) return false;
  if (std::ranges::none_of(group.calls, is_collective)) return false;
  return (!comm.agreed || all_collectives_use_engine(group)) && !is_captured(group);
}

Readiness own_readiness(const GroupCalls& group) {
  if (forwards_collectives(group) || is_captured(group)) return Readiness::cannot_attach;
  const auto gains = [&](const Call& call) { return decide(*group.comm, call).use_engine; };
  return all_collectives_use_engine(group) && std::ranges::any_of(group.calls, gains) ? Readiness::wants_to_attach
                                                                                      : Readiness::can_attach;
}

// Whether two ranks attach before their first common calls. No such call has been forwarded yet. Neither rank waits
// longer than with NCCL, which connects two ranks at their first transfer.
bool agrees_with_peer(GroupCalls& group) {
  Communicator& comm = *group.comm;
  const Readiness own = own_readiness(group);
  const auto handshake = std::move(comm.handshake);
  if (handshake == nullptr) return false;
  LongWait wait;
  const auto peer = handshake->exchange(own, [&] {
    if (wait.becomes_long()) log(Level::info, "rank %d waits for the first call of the other rank", comm.rank);
    return comm.aborted.load();
  });
  if (own == Readiness::cannot_attach || peer.value_or(Readiness::cannot_attach) == Readiness::cannot_attach)
    return false;
  return own == Readiness::wants_to_attach || peer == Readiness::wants_to_attach;
}

}  // namespace

bool needs_preparation(const GroupCalls& group) { return needs_handshake(group) || has_collective_to_prepare(group); }

void prepare(GroupCalls& group) {
  Communicator& comm = *group.comm;
  const RelaxedCaptureMode relaxed;
  const std::lock_guard lock(comm.preparing);
  if (needs_handshake(group)) {
    if (agrees_with_peer(group)) agree_and_attach(comm);
    comm.handshake_pending.store(false);
  }
  if (!has_collective_to_prepare(group)) return;
  if (!comm.agreed) agree(comm);
  if (comm.why_forwarded.load() == nullptr && all_collectives_use_engine(group)) attach(comm);
}

GroupPlan make_plan(GroupCalls& group) {
  Communicator& comm = *group.comm;
  GroupPlan plan{
      .comm = group.comm, .on_engine = {.comm = group.comm}, .forwarded = {}, .keeps_order = comm.attached()};
  const bool can_use_engine = comm.attached() && comm.why_forwarded.load() == nullptr;
  // The decision about a single call is made below.
  const bool collectives_use_engine = can_use_engine && (group.calls.size() == 1 || all_collectives_use_engine(group));
  plan.on_engine.calls.reserve(group.calls.size());
  const Call* decided = nullptr;
  Decision decision{};
  for (const Call& call : group.calls) {
    if (decided == nullptr || !are_alike(call, *decided)) decision = decide(comm, call);
    decided = &call;
    if (decision.use_engine && (is_collective(call) ? collectives_use_engine : can_use_engine)) {
      plan.on_engine.calls.push_back({call, decision.codec, decision.result_codec, decision.codec_from});
      continue;
    }
    const char* why = comm.why_forwarded.load();
    if (why == nullptr) why = decision.why_forwarded;
    if (why == nullptr)
      why = can_use_engine && is_collective(call) ? "its group has a call that is forwarded" : not_attached;
    plan.forwarded.push_back({call, why});
  }
  plan.on_engine.forwarded_on = group.forwarded_on;
  for (const ForwardedCall& one : plan.forwarded) plan.on_engine.forwarded_on.push_back(one.call.stream);
  return plan;
}

const char* why_forwarded_directly(Communicator& comm, const Call& call) {
  if (const char* const why = comm.why_forwarded.load()) return why;
  return comm.agreed && !comm.attached() ? decide(comm, call).why_forwarded : nullptr;
}

const char* why_forwarded_immediately(Communicator& comm, const Call& call, const char* otherwise) {
  if (const char* const why = comm.why_forwarded.load()) return why;
  const char* const why = decide(comm, call).why_forwarded;
  return why != nullptr ? why : otherwise;
}

}  // namespace narrowcast::nccl
