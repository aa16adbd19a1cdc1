// scatter: the root sends each piece directly to its rank.
#include "executor/host/operations.h"

namespace narrowcast::executor::host {

void add_scatter(const Call& call, Schedule* schedule) {
  Communicator& comm = communicator_of(call);
  Stage stage{next_collective(comm, call), {}};
  stage.add<CompareCalls>(comm, stage.tag);
  const uint64_t chunk_elems = moved_chunk_elems(comm, call.dtype);
  if (comm.rank() != call.peer) {
    stage.add<Receive>(comm, call.peer, stage.tag, call.recv, call.count, chunk_elems);
  } else {
    for (int peer = 0; peer < comm.ranks(); ++peer) {
      const std::byte* from = at(call.send, call.dtype, static_cast<uint64_t>(peer) * call.count);
      if (peer == comm.rank()) {
        stage.add<Copy>(from, call.recv, call.count * ncast_dtype_bytes(call.dtype));
      } else {
        stage.add<Send>(comm, channel::rank_bit(peer), stage.tag, from, call.count, chunk_elems);
      }
    }
  }
  schedule->stages.push_back(std::move(stage));
}

}  // namespace narrowcast::executor::host
