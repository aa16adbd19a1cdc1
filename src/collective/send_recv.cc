// send and recv: those of a group run at once, those on one lane in order.
#include <cinttypes>
#include <map>

#include "collective/operations.h"
#include "status/error.h"

namespace narrowcast::collective {
namespace {

bool is_to_oneself(const Call& call) { return is_point_to_point(call.operation) && call.peer == call.comm->rank(); }

// Of calls to and from oneself, the receive that fits the n-th send is the n-th.
struct SelfCalls {
  std::vector<const Call*> sends;
  std::vector<const Call*> receives;
  void add(const Call& call) { (call.operation == Operation::send ? sends : receives).push_back(&call); }
};

}  // namespace

ncast_status check_sends_to_oneself(std::span<const Call> calls) {
  std::map<const ncast_comm*, SelfCalls> by_comm;
  for (const Call& call : calls) {
    if (is_to_oneself(call)) by_comm[call.comm].add(call);
  }
  for (const auto& [comm, self] : by_comm) {
    if (self.sends.size() != self.receives.size()) {
      return fail(NCAST_INVALID_ARGUMENT,
                  "rank %d sends to itself %zu times and receives from itself %zu times: both must be in one group",
                  comm->rank(), self.sends.size(), self.receives.size());
    }
    for (size_t i = 0; i < self.sends.size(); ++i) {
      const CallTag send = make_tag(*self.sends[i], 0);
      const CallTag receive = make_tag(*self.receives[i], 0);
      if (same_call(send, receive)) continue;
      return fail(NCAST_MISMATCH, "rank %d sends itself %" PRIu64 " %s and receives %" PRIu64 " %s (they differ in %s)",
                  comm->rank(), send.count, ncast_dtype_name(self.sends[i]->dtype), receive.count,
                  ncast_dtype_name(self.receives[i]->dtype), differences(send, receive).c_str());
    }
  }
  return NCAST_OK;
}

void add_sends_and_receives(std::span<const Call* const> calls, Script* script) {
  if (calls.empty()) return;
  ncast_comm& comm = *script->comm;
  const auto ranks = static_cast<size_t>(comm.ranks());
  std::vector<Queue> outgoing(ranks);
  std::vector<Queue> incoming(ranks);
  SelfCalls self;
  Stage stage{make_tag(*calls.front(), 0), {}};
  for (const Call* call : calls) {
    const auto peer = static_cast<size_t>(call->peer);
    const uint64_t chunk_elems = moved_chunk_elems(comm, call->dtype);
    if (is_to_oneself(*call)) {
      self.add(*call);
    } else if (call->operation == Operation::send) {
      const CallTag tag = make_tag(*call, ++comm.sends[peer]);
      outgoing[peer].push_back(
          std::make_unique<Send>(comm, channel::only(call->peer), tag, call->send, call->count, chunk_elems));
    } else {
      const CallTag tag = make_tag(*call, ++comm.receives[peer]);
      incoming[peer].push_back(std::make_unique<Receive>(comm, call->peer, tag, call->recv, call->count, chunk_elems));
    }
  }
  for (size_t i = 0; i < self.sends.size(); ++i) {
    stage.add<Copy>(self.sends[i]->send, self.receives[i]->recv,
                    self.sends[i]->count * ncast_dtype_bytes(self.sends[i]->dtype));
  }
  for (std::vector<Queue>* lanes : {&outgoing, &incoming}) {
    for (Queue& queue : *lanes) {
      if (!queue.empty()) stage.queues.push_back(std::move(queue));
    }
  }
  script->stages.push_back(std::move(stage));
}

}  // namespace narrowcast::collective
