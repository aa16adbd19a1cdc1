// all_gather: every rank sends its values directly to all others, and encodes each chunk once.
#include "executor/host/operations.h"

namespace narrowcast::executor::host {

Stage gather_stage(Communicator& comm, const CallTag& tag, const void* own, void* gathered, const Pieces& pieces) {
  Stage stage{tag, {}};
  const auto dtype = static_cast<ncast_dtype>(tag.dtype);
  const uint64_t chunk_elems = moved_chunk_elems(comm, dtype);
  const int rank = comm.rank();
  std::byte* const kept = at(gathered, dtype, pieces.first(rank));
  const bool keeps_decoded = comm.ranks() > 1 && !is_exact(tag);
  if (!keeps_decoded) stage.add<Copy>(own, kept, pieces.elems(rank) * ncast_dtype_bytes(dtype));
  if (comm.ranks() > 1) {
    Send& send = stage.add<Send>(comm, all_peers(comm), tag, own, pieces.elems(rank), chunk_elems);
    if (keeps_decoded) send.keep_decoded(kept);
  }
  for (int peer = 0; peer < comm.ranks(); ++peer) {
    if (peer == rank) continue;
    stage.add<Receive>(comm, peer, tag, at(gathered, dtype, pieces.first(peer)), pieces.elems(peer), chunk_elems);
  }
  return stage;
}

void add_all_gather(const Call& call, Schedule* schedule) {
  Communicator& comm = communicator_of(call);
  const Pieces pieces(call.count * static_cast<uint64_t>(comm.ranks()), comm.ranks());
  schedule->stages.push_back(gather_stage(comm, next_collective(comm, call), call.send, call.recv, pieces));
}

}  // namespace narrowcast::executor::host
