// all_reduce: a reduce-scatter, then an all-gather of the reduced pieces. The owner of a piece rounds it, so all ranks
// get the same bits.
//
// Working in place is safe: a peer's piece is overwritten by the reduced piece, which the peer can only send after it
// has received this rank's values of that piece.
#include "executor/host/operations.h"

namespace narrowcast::executor::host {

void add_all_reduce(const Call& call, Schedule* schedule) {
  Communicator& comm = communicator_of(call);
  const Pieces pieces(call.count, comm.ranks());
  CallTag tag = next_collective(comm, call);
  std::byte* own = at(call.recv, call.dtype, pieces.first(comm.rank()));
  schedule->stages.push_back(reduce_stage(comm, tag, call.send, own, pieces));
  tag.phase = 1;
  schedule->stages.push_back(gather_stage(comm, tag, own, call.recv, pieces));
}

}  // namespace narrowcast::executor::host
