// all_to_all_v: every rank sends each piece directly to its destination. Plans do not describe it, because their pieces
// all have the same size.
#include "executor/host/staged_calls.h"

namespace narrowcast::executor::host {

void add_all_to_all_v(const Call& call, StagedCalls* staged) {
  Communicator& comm = communicator_of(call);
  // The receiver of each chunk compares the counts of the pair of ranks.
  Stage stage;
  stage.tag = make_tag(call, ++comm.collectives);
  CallTag to_peer = stage.tag;
  CallTag from_peer = stage.tag;
  for (int peer = 0; peer < comm.ranks(); ++peer) {
    const PeerCounts::Range send = call.peer_counts->send[static_cast<size_t>(peer)];
    const PeerCounts::Range recv = call.peer_counts->recv[static_cast<size_t>(peer)];
    to_peer.count = send.elems;
    from_peer.count = recv.elems;
    const std::byte* const from = at(call.send, call.dtype, send.first);
    std::byte* const to = at(call.recv, call.dtype, recv.first);
    if (peer == comm.rank()) {
      stage.add<Copy>(from, to, send.elems * ncast_dtype_bytes(call.dtype));
    } else {
      stage.add<Send>(comm, peer, to_peer, encoding_of(call), from, send.elems);
      stage.add<Receive>(comm, peer, from_peer, encoding_of(call), to, recv.elems);
    }
  }
  // Do not return before every receiver has compared its counts.
  Stage end;
  end.tag = stage.tag;
  end.tag.phase = 1;
  end.comparison.emplace(comm, end.tag);
  staged->stages.push_back(std::move(stage));
  staged->stages.push_back(std::move(end));
}

}  // namespace narrowcast::executor::host
