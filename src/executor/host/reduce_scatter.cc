// reduce_scatter: every rank sends each piece directly to its owner, which reduces it.
#include "executor/host/operations.h"
#include "executor/host/reduce_receive.h"

namespace narrowcast::executor::host {

Stage reduce_stage(Communicator& comm, const CallTag& tag, const void* values, void* result, const Pieces& pieces) {
  Stage stage{tag, {}};
  const auto dtype = static_cast<ncast_dtype>(tag.dtype);
  const uint64_t chunk_elems = reduced_chunk_elems(comm, dtype);
  for (int peer = 0; peer < comm.ranks(); ++peer) {
    const std::byte* piece = at(values, dtype, pieces.first(peer));
    if (peer == comm.rank()) {
      stage.add<ReduceReceive>(comm, tag, piece, result, pieces.elems(peer));
    } else {
      stage.add<Send>(comm, channel::rank_bit(peer), tag, piece, pieces.elems(peer), chunk_elems);
    }
  }
  return stage;
}

void add_reduce_scatter(const Call& call, Schedule* schedule) {
  Communicator& comm = communicator_of(call);
  const Pieces pieces(call.count * static_cast<uint64_t>(comm.ranks()), comm.ranks());
  schedule->stages.push_back(reduce_stage(comm, next_collective(comm, call), call.send, call.recv, pieces));
}

}  // namespace narrowcast::executor::host
