// The content of ncast_ports::reserved, for the functions of narrowcast/device.cuh.
#pragma once

#include "../peer/peers.h"
#include "fifo.h"
#include "narrowcast/channel.h"

namespace narrowcast::channel {

// In device memory, zeroed at first. It persists between kernels, so that CUDA graphs can be replayed.
struct PortState {
  unsigned long long tickets;  // tickets issued so far
  uint64_t consumed;           // a copy of PortFifo::consumed, possibly old, that is cheaper to read
};

struct KernelPorts {
  Peers peers;  // scratch: the semaphores of each rank, by source and port: the number of signals that have arrived
  PortFifo* fifo;
  PortState* state;
  uint64_t* waited;  // in device memory, by source and port: the number of signals that wait() and poll() have returned
};
static_assert(max_gpu_ranks < PortRequest::peers && NCAST_MOST_PORTS < PortRequest::ports &&
              NCAST_MOST_REGIONS < PortRequest::regions);
static_assert(sizeof(KernelPorts) <= sizeof ncast_ports::reserved);
static_assert(alignof(KernelPorts) <= alignof(ncast_ports));

}  // namespace narrowcast::channel
