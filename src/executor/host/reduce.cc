// reduce: every rank sends its values to the root, which reduces them. No other rank has room for a part of the result
// that it could reduce.
#include "executor/host/operations.h"
#include "executor/host/reduce_receive.h"

namespace narrowcast::executor::host {

void add_reduce(const Call& call, Script* script) {
  Communicator& comm = communicator_of(call);
  Stage stage{next_collective(comm, call), {}};
  stage.add<CompareCalls>(comm, stage.tag);
  if (comm.rank() == call.peer) {
    stage.add<ReduceReceive>(comm, stage.tag, call.send, call.recv, call.count);
  } else {
    const uint64_t chunk_elems = reduced_chunk_elems(comm, call.dtype);
    stage.add<Send>(comm, channel::only(call.peer), stage.tag, call.send, call.count, chunk_elems);
  }
  script->stages.push_back(std::move(stage));
}

}  // namespace narrowcast::executor::host
