// The host of a process, and whether the ranks of a program may be on several.
#pragma once

#include <cstdint>
#include <string>

namespace narrowcast::bootstrap {

// The same number in processes that can share memory: a hash of NARROWCAST_HOSTID, or of NCCL_HOSTID, or of the
// machine, its name, the pid namespace and /dev/shm, which containers may have of their own.
uint64_t own_host();

// The same number in processes whose GPUs can be in one machine: a hash of the same variables, or of the machine.
uint64_t own_machine();

// For messages: the variable that these use, or the name of the machine.
std::string host_name();

// Why a new communicator may have ranks on several hosts, by the environment: a variable names this host or the
// interfaces, or the launcher (torchrun, Open MPI, MPICH, Intel MPI, Slurm) has started processes on other hosts. Empty
// if nothing says so.
std::string why_several_hosts();
inline bool may_span_hosts() { return !why_several_hosts().empty(); }

// Of the kernel; empty if it cannot be read.
std::string boot_id();

}  // namespace narrowcast::bootstrap
