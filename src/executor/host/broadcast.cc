// broadcast: the root sends directly to all others, and encodes each chunk once.
#include "executor/host/operations.h"

namespace narrowcast::executor::host {

void add_broadcast(const Call& call, Schedule* schedule) {
  Communicator& comm = communicator_of(call);
  Stage stage{next_collective(comm, call), {}};
  stage.add<CompareCalls>(comm, stage.tag);
  const uint64_t chunk_elems = moved_chunk_elems(comm, call.dtype);
  if (comm.rank() == call.peer) {
    const bool keeps_decoded = comm.ranks() > 1 && !is_exact(stage.tag);
    if (!keeps_decoded) stage.add<Copy>(call.send, call.recv, call.count * ncast_dtype_bytes(call.dtype));
    if (comm.ranks() > 1) {
      Send& send = stage.add<Send>(comm, all_peers(comm), stage.tag, call.send, call.count, chunk_elems);
      if (keeps_decoded) send.keep_decoded(call.recv);
    }
  } else {
    stage.add<Receive>(comm, call.peer, stage.tag, call.recv, call.count, chunk_elems);
  }
  schedule->stages.push_back(std::move(stage));
}

}  // namespace narrowcast::executor::host
