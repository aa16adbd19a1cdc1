// The stages of each operation. Every operation has its own source file.
#pragma once

#include <span>

#include "executor/host/stage.h"

namespace narrowcast::executor::host {

// Appends the stages of one call.
void add_broadcast(const Call& call, Schedule* schedule);
void add_reduce(const Call& call, Schedule* schedule);
void add_gather(const Call& call, Schedule* schedule);
void add_scatter(const Call& call, Schedule* schedule);
void add_all_gather(const Call& call, Schedule* schedule);
void add_all_to_all(const Call& call, Schedule* schedule);
void add_all_to_all_v(const Call& call, Schedule* schedule);
void add_reduce_scatter(const Call& call, Schedule* schedule);
void add_all_reduce(const Call& call, Schedule* schedule);

// Appends all sends and receives of a group, in one stage. The caller has checked that sends from this rank to itself
// match their receives.
void add_sends_and_receives(std::span<const Call* const> calls, Schedule* schedule);

// Stages that several operations use.

// Every rank sends its piece `own` to all others, and receives their pieces into `gathered`.
Stage gather_stage(Communicator& comm, const CallTag& tag, const void* own, void* gathered, const Pieces& pieces);

// Every rank sends to each other rank that rank's piece of `values`. It reduces the pieces that it receives, and its
// own, into `result`.
Stage reduce_stage(Communicator& comm, const CallTag& tag, const void* values, void* result, const Pieces& pieces);

CallTag next_collective(Communicator& comm, const Call& call);
channel::RankSet all_peers(const Communicator& comm);

}  // namespace narrowcast::executor::host
