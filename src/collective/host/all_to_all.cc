// all_to_all: every rank sends each other one its piece directly.
#include "collective/host/operations.h"

namespace narrowcast::collective::host {

void add_all_to_all(const Call& call, Script* script) {
  Communicator& comm = communicator_of(call);
  Stage stage{next_collective(comm, call), {}};
  const uint64_t chunk_elems = moved_chunk_elems(comm, call.dtype);
  for (int peer = 0; peer < comm.ranks(); ++peer) {
    const auto first = static_cast<uint64_t>(peer) * call.count;
    const std::byte* from = at(call.send, call.dtype, first);
    std::byte* to = at(call.recv, call.dtype, first);
    if (peer == comm.rank()) {
      stage.add<Copy>(from, to, call.count * ncast_dtype_bytes(call.dtype));
    } else {
      stage.add<Send>(comm, channel::only(peer), stage.tag, from, call.count, chunk_elems);
      stage.add<Receive>(comm, peer, stage.tag, to, call.count, chunk_elems);
    }
  }
  script->stages.push_back(std::move(stage));
}

}  // namespace narrowcast::collective::host
