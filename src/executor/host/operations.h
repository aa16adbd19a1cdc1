// Each operation of the interface as stages of transfers. A file an operation.
#pragma once

#include <span>

#include "executor/host/stage.h"

namespace narrowcast::executor::host {

// Appends the stages of one call.
void add_broadcast(const Call& call, Script* script);
void add_reduce(const Call& call, Script* script);
void add_gather(const Call& call, Script* script);
void add_scatter(const Call& call, Script* script);
void add_all_gather(const Call& call, Script* script);
void add_all_to_all(const Call& call, Script* script);
void add_all_to_all_v(const Call& call, Script* script);
void add_reduce_scatter(const Call& call, Script* script);
void add_all_reduce(const Call& call, Script* script);

// All sends and receives of a group, in one stage. Those to oneself fit together.
void add_sends_and_receives(std::span<const Call* const> calls, Script* script);

// Parts that operations share.

// Every rank sends `own`, its piece, to all others, and receives theirs into their pieces of `gathered`.
Stage gather_stage(Communicator& comm, const CallTag& tag, const void* own, void* gathered, const Pieces& pieces);

// Every rank sends each other one its piece of `values`, and reduces what it receives, and its own piece, to `result`.
Stage reduce_stage(Communicator& comm, const CallTag& tag, const void* values, void* result, const Pieces& pieces);

CallTag next_collective(Communicator& comm, const Call& call);
channel::RankSet all_peers(const Communicator& comm);

}  // namespace narrowcast::executor::host
