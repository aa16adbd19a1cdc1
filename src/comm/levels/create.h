// Communicators of two levels.
//
// The ranks form groups of the same number of at most 8 ranks, with consecutive numbers: those of a host, if possible.
// Every rank has a communicator with the ranks of its group, and one with the ranks of the same index in the other
// groups, which has two levels in turn if there are more than 8. A call is a sequence of calls of these, so that every
// value goes to each other group once, and every rank's link between groups carries an equal share, as in MSCCL++'s and
// NCCL's hierarchical algorithms. Any other two ranks create a communicator at their first message (pairs.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "bootstrap/process.h"
#include "bootstrap/rendezvous.h"
#include "comm/levels/shape.h"
#include "environment/communicator_variables.h"
#include "environment/level_shape.h"
#include "narrowcast/comm.h"

namespace narrowcast::comm {

// Whether there are too many ranks for one level of GPUs, and settings allow two.
bool may_need_levels(int ranks, const ncast_comm_config& config);

struct RankPlace {
  uint64_t host;
  bootstrap::ProcessIdentity process;
};
// The levels of these ranks. nullopt: they have one; *why_not is a string constant.
//
// automatic: GPUs have two levels where level_counts() says so, but up to 8 ranks only if each has a process of its
// own: a call of two levels is many launches, so a thread that makes the calls of several ranks, one after the other,
// would wait for itself once these have filled the queue of a stream.
std::optional<environment::LevelCounts> choose_levels(environment::Levels setting, ncast_backend backend,
                                                      std::span<const RankPlace> ranks, const char** why_not);

// Every rank calls this. *shape: where this rank is, if they have two levels. Errors: UNSUPPORTED if they can have
// neither one level nor two; MISMATCH if they have different settings; those of the rendezvous.
ncast_status find_levels(bootstrap::Rendezvous& all, const ncast_comm_config& config, std::optional<LevelShape>* shape);

// As ncast_comm_create, for the ranks of a rendezvous that have found levels.
ncast_status create_levels(std::unique_ptr<bootstrap::Rendezvous> all, const LevelShape& shape,
                           const ncast_comm_config& config, ncast_comm** comm);

}  // namespace narrowcast::comm
