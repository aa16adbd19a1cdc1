// all_to_all and all_to_all_v: every rank sends each piece directly to its destination.
#include "executor/host/operations.h"

namespace narrowcast::executor::host {
namespace {

// Adds the transfers between this rank and `peer`, which may be this rank.
void add_exchange(Communicator& comm, int peer, ncast_dtype dtype, const CallTag& to_peer, const std::byte* from,
                  const CallTag& from_peer, std::byte* to, Stage* stage) {
  if (peer == comm.rank()) {
    stage->add<Copy>(from, to, to_peer.count * ncast_dtype_bytes(dtype));
    return;
  }
  const uint64_t chunk_elems = moved_chunk_elems(comm, dtype);
  stage->add<Send>(comm, channel::rank_bit(peer), to_peer, from, to_peer.count, chunk_elems);
  stage->add<Receive>(comm, peer, from_peer, to, from_peer.count, chunk_elems);
}

}  // namespace

void add_all_to_all(const Call& call, Schedule* schedule) {
  Communicator& comm = communicator_of(call);
  Stage stage{next_collective(comm, call), {}};
  for (int peer = 0; peer < comm.ranks(); ++peer) {
    const auto first = static_cast<uint64_t>(peer) * call.count;
    add_exchange(comm, peer, call.dtype, stage.tag, at(call.send, call.dtype, first), stage.tag,
                 at(call.recv, call.dtype, first), &stage);
  }
  schedule->stages.push_back(std::move(stage));
}

void add_all_to_all_v(const Call& call, Schedule* schedule) {
  Communicator& comm = communicator_of(call);
  // The receiver of each chunk compares the counts of the pair of ranks.
  Stage stage{next_collective(comm, call), {}};
  CallTag to_peer = stage.tag;
  CallTag from_peer = stage.tag;
  for (int peer = 0; peer < comm.ranks(); ++peer) {
    const PeerCounts::Range send = call.peer_counts->send[static_cast<size_t>(peer)];
    const PeerCounts::Range recv = call.peer_counts->recv[static_cast<size_t>(peer)];
    to_peer.count = send.elems;
    from_peer.count = recv.elems;
    add_exchange(comm, peer, call.dtype, to_peer, at(call.send, call.dtype, send.first), from_peer,
                 at(call.recv, call.dtype, recv.first), &stage);
  }
  // Do not return before every receiver has compared its counts.
  Stage end{stage.tag, {}};
  end.tag.phase = 1;
  end.add<CompareCalls>(comm, end.tag);
  schedule->stages.push_back(std::move(stage));
  schedule->stages.push_back(std::move(end));
}

}  // namespace narrowcast::executor::host
