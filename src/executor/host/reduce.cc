// reduce: every rank sends its values to the root, which reduces them. The work is not divided between the ranks,
// because only the root has a buffer for the result.
#include "executor/host/operations.h"
#include "executor/host/reduce_receive.h"

namespace narrowcast::executor::host {

void add_reduce(const Call& call, Schedule* schedule) {
  Communicator& comm = communicator_of(call);
  Stage stage{next_collective(comm, call), {}};
  stage.add<CompareCalls>(comm, stage.tag);
  if (comm.rank() == call.peer) {
    stage.add<ReduceReceive>(comm, stage.tag, call.send, call.recv, call.count);
  } else {
    const uint64_t chunk_elems = reduced_chunk_elems(comm, call.dtype);
    stage.add<Send>(comm, channel::rank_bit(call.peer), stage.tag, call.send, call.count, chunk_elems);
  }
  schedule->stages.push_back(std::move(stage));
}

}  // namespace narrowcast::executor::host
