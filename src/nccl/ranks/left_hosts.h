// Hosts between which this process leaves communicators to NCCL, as it has learned from earlier ones. Any thread.
#pragma once

#include <cstdint>

namespace narrowcast::nccl {

// hosts: of a Communicator, not 0.

// NCCL is faster between them: another communicator need not measure that.
void leave_hosts(uint64_t hosts);
// Ranks on several hosts could not attach to each other: others would take as long to fail.
void leave_all_hosts();

bool are_left(uint64_t hosts);

}  // namespace narrowcast::nccl
