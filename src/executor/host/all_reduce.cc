// all_reduce: a reduce-scatter, then an all-gather of the reduced pieces. All ranks get the bits that the owner of a
// piece rounded.
//
// In place is safe: this rank's values of a peer's piece are overwritten by the result, which the peer can only have
// made from them.
#include "executor/host/operations.h"

namespace narrowcast::executor::host {

void add_all_reduce(const Call& call, Script* script) {
  Communicator& comm = communicator_of(call);
  const Pieces pieces(call.count, comm.ranks());
  CallTag tag = next_collective(comm, call);
  std::byte* own = at(call.recv, call.dtype, pieces.first(comm.rank()));
  script->stages.push_back(reduce_stage(comm, tag, call.send, own, pieces));
  tag.phase = 1;
  script->stages.push_back(gather_stage(comm, tag, own, call.recv, pieces));
}

}  // namespace narrowcast::executor::host
