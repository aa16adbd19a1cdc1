// send and recv: those of a group run concurrently, except that those on the same ring run in order.
#include "executor/host/staged_calls.h"

namespace narrowcast::executor::host {

void add_sends_and_receives(std::span<const Call* const> calls, StagedCalls* staged) {
  if (calls.empty()) return;
  Communicator& comm = *staged->comm;
  std::vector<const Call*> self_sends;  // send i matches receive i
  std::vector<const Call*> self_receives;
  Stage& stage = staged->stages.emplace_back();
  stage.tag = make_tag(*calls.front(), 0);
  // The queue of a ring. Most stages have few.
  std::vector<std::pair<Operation, int>> rings;
  const auto queue_of = [&](const Call& call) -> Queue& {
    const std::pair ring(call.operation, call.peer);
    const auto found = std::ranges::find(rings, ring);
    if (found != rings.end()) return stage.queues[static_cast<size_t>(found - rings.begin())];
    rings.push_back(ring);
    return stage.queues.emplace_back();
  };
  for (const Call* call : calls) {
    const auto peer = static_cast<size_t>(call->peer);
    if (is_to_self(*call)) {
      (call->operation == Operation::send ? self_sends : self_receives).push_back(call);
    } else if (call->operation == Operation::send) {
      const CallTag tag = make_tag(*call, ++comm.sends[peer]);
      queue_of(*call).push_back(
          std::make_unique<Send>(comm, call->peer, tag, encoding_of(*call), call->send, call->count));
    } else {
      const CallTag tag = make_tag(*call, ++comm.receives[peer]);
      queue_of(*call).push_back(
          std::make_unique<Receive>(comm, call->peer, tag, encoding_of(*call), call->recv, call->count));
    }
  }
  for (size_t i = 0; i < self_sends.size(); ++i) {
    stage.add<Copy>(self_sends[i]->send, self_receives[i]->recv,
                    self_sends[i]->count * ncast_dtype_bytes(self_sends[i]->dtype));
  }
}

}  // namespace narrowcast::executor::host
