// gather: every rank sends its values directly to the root.
#include "executor/host/operations.h"

namespace narrowcast::executor::host {

void add_gather(const Call& call, Schedule* schedule) {
  Communicator& comm = communicator_of(call);
  Stage stage{next_collective(comm, call), {}};
  stage.add<CompareCalls>(comm, stage.tag);
  const uint64_t chunk_elems = moved_chunk_elems(comm, call.dtype);
  if (comm.rank() != call.peer) {
    stage.add<Send>(comm, channel::rank_bit(call.peer), stage.tag, call.send, call.count, chunk_elems);
  } else {
    for (int peer = 0; peer < comm.ranks(); ++peer) {
      std::byte* to = at(call.recv, call.dtype, static_cast<uint64_t>(peer) * call.count);
      if (peer == comm.rank()) {
        stage.add<Copy>(call.send, to, call.count * ncast_dtype_bytes(call.dtype));
      } else {
        stage.add<Receive>(comm, peer, stage.tag, to, call.count, chunk_elems);
      }
    }
  }
  schedule->stages.push_back(std::move(stage));
}

}  // namespace narrowcast::executor::host
