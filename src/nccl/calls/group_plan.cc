#include "nccl/calls/group_plan.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "nccl/libraries/cuda_driver.h"
#include "nccl/ranks/agreement.h"
#include "nccl/ranks/attach.h"
#include "nccl/report/log.h"

namespace narrowcast::nccl {
namespace {

constexpr const char* not_attached = "the communicator is not attached yet";

bool is_collective(const Call& call) { return !is_point_to_point(call.operation); }

Decision decision_on(const Communicator& comm, const Call& call) {
  return comm.decisions.on(call, comm.traits, comm.engine_comm.load(), comm.has_windows.load());
}

bool is_captured(const GroupCalls& its) {
  const OnDevice on_device(its.comm->device);
  return capture_of(its.calls[0].stream) != 0;
}

bool forwards_collectives(const GroupCalls& its) { return its.as_they_come != AsTheyCome::none; }

// Calls that go to NCCL as they come are not told apart.
bool has_part_for_both(const GroupCalls& its) {
  return forwards_collectives(its) || std::ranges::any_of(its.calls, [&](const Call& call) {
           return is_collective(call) || call.peer != its.comm->rank;
         });
}

bool needs_meeting(const GroupCalls& its) { return its.comm->will_meet.load() && has_part_for_both(its); }

// A group's collectives are the same on all ranks, its transfers are not.
bool takes_all_collectives(const GroupCalls& its) {
  return std::ranges::all_of(
      its.calls, [&](const Call& call) { return !is_collective(call) || decision_on(*its.comm, call).take; });
}

bool has_collective_to_prepare(const GroupCalls& its) {
  const Communicator& comm = *its.comm;
  if (comm.why_forwarded.load() != nullptr || comm.attached() || forwards_collectives(its)) return false;
  if (std::ranges::none_of(its.calls, is_collective)) return false;
  return (!comm.agreed || takes_all_collectives(its)) && !is_captured(its);
}

Wish wish_of(const GroupCalls& its) {
  if (forwards_collectives(its) || is_captured(its)) return Wish::none;
  const auto gains = [&](const Call& call) { return decision_on(*its.comm, call).take; };
  return takes_all_collectives(its) && std::ranges::any_of(its.calls, gains) ? Wish::eager : Wish::able;
}

// Whether both ranks of a communicator are to attach before the first calls that both have a part in. Nothing of theirs has been
// forwarded, and neither is kept longer than by NCCL, which connects two ranks at their first transfer.
bool meet(GroupCalls& its) {
  Communicator& comm = *its.comm;
  const Wish own = wish_of(its);
  const auto meeting = std::move(comm.meeting);
  if (meeting == nullptr) return false;
  LongWait wait;
  const auto others = meeting->exchange(own, [&] {
    if (wait.becomes_long()) log(Level::info, "rank %d waits for the first call of the other rank", comm.rank);
    return comm.aborted.load();
  });
  if (own == Wish::none || others.value_or(Wish::none) == Wish::none) return false;
  return own == Wish::eager || others == Wish::eager;
}

}  // namespace

bool needs_preparation(const GroupCalls& its) { return needs_meeting(its) || has_collective_to_prepare(its); }

void prepare(GroupCalls& its) {
  Communicator& comm = *its.comm;
  const BesideCaptures beside_captures;
  const std::lock_guard lock(comm.preparing);
  if (needs_meeting(its)) {
    if (meet(its)) agree_and_attach(comm);
    comm.will_meet.store(false);
  }
  if (!has_collective_to_prepare(its)) return;
  if (!comm.agreed) agree(comm);
  if (comm.why_forwarded.load() == nullptr && takes_all_collectives(its)) attach(comm);
}

Plan make_plan(GroupCalls& its) {
  Communicator& comm = *its.comm;
  Plan plan{.comm = its.comm, .taken = {.comm = its.comm}, .forwarded = {}, .ordered = comm.attached()};
  const bool attached = comm.attached() && comm.why_forwarded.load() == nullptr;
  const bool takes_collectives = attached && takes_all_collectives(its);
  for (const Call& call : its.calls) {
    const Decision decision = decision_on(comm, call);
    if (decision.take && (is_collective(call) ? takes_collectives : attached)) {
      plan.taken.calls.push_back({call, decision.codec});
      continue;
    }
    const char* why = comm.why_forwarded.load();
    if (why == nullptr) why = decision.why_not;
    if (why == nullptr) why = attached && is_collective(call) ? "its group has a call that is forwarded" : not_attached;
    plan.forwarded.push_back({call, why});
  }
  plan.taken.forwarded_on = its.forwarded_on;
  for (const ForwardedCall& one : plan.forwarded) plan.taken.forwarded_on.push_back(one.call.stream);
  return plan;
}

const char* why_forwarded_at_once(const Communicator& comm, const Call& call) {
  if (const char* const why = comm.why_forwarded.load()) return why;
  return comm.agreed && !comm.attached() ? decision_on(comm, call).why_not : nullptr;
}

const char* why_forwarded_now(const Communicator& comm, const Call& call, const char* otherwise) {
  if (const char* const why = comm.why_forwarded.load()) return why;
  const char* const why = decision_on(comm, call).why_not;
  return why != nullptr ? why : otherwise;
}

}  // namespace narrowcast::nccl
