// send and recv: those of a group run concurrently, except that those on the same ring run in order.
#include "executor/host/schedule.h"

namespace narrowcast::executor::host {

void add_sends_and_receives(std::span<const Call* const> calls, Schedule* schedule) {
  if (calls.empty()) return;
  Communicator& comm = *schedule->comm;
  const auto ranks = static_cast<size_t>(comm.ranks());
  std::vector<Queue> outgoing(ranks);
  std::vector<Queue> incoming(ranks);
  std::vector<const Call*> self_sends;  // send i matches receive i
  std::vector<const Call*> self_receives;
  Stage stage;
  stage.tag = make_tag(*calls.front(), 0);
  for (const Call* call : calls) {
    const auto peer = static_cast<size_t>(call->peer);
    if (is_to_self(*call)) {
      (call->operation == Operation::send ? self_sends : self_receives).push_back(call);
    } else if (call->operation == Operation::send) {
      const CallTag tag = make_tag(*call, ++comm.sends[peer]);
      outgoing[peer].push_back(std::make_unique<Send>(comm, call->peer, tag, call->send, call->count));
    } else {
      const CallTag tag = make_tag(*call, ++comm.receives[peer]);
      incoming[peer].push_back(std::make_unique<Receive>(comm, call->peer, tag, call->recv, call->count));
    }
  }
  for (size_t i = 0; i < self_sends.size(); ++i) {
    stage.add<Copy>(self_sends[i]->send, self_receives[i]->recv,
                    self_sends[i]->count * ncast_dtype_bytes(self_sends[i]->dtype));
  }
  for (std::vector<Queue>* rings : {&outgoing, &incoming}) {
    for (Queue& queue : *rings) {
      if (!queue.empty()) stage.queues.push_back(std::move(queue));
    }
  }
  schedule->stages.push_back(std::move(stage));
}

}  // namespace narrowcast::executor::host
