// What ncast_ports holds for the kernels, in `reserved`.
#pragma once

#include "../peer/peers.h"
#include "fifo.h"
#include "narrowcast/channel.h"

namespace narrowcast::channel {

// In device memory, zero at first. Goes on from kernel to kernel, so that a CUDA graph may be replayed.
struct PortState {
  unsigned long long tickets;  // given to requests
  uint64_t taken;              // PortFifo::taken as a kernel has last seen it, or before
};

struct KernelPorts {
  Peers peers;  // scratch: the semaphores, by source and port: how many signals have come
  PortFifo* fifo;
  PortState* state;
  uint64_t* waited;  // by source and port: the signals that wait() and poll() have returned; in device memory as well
};
static_assert(max_gpu_ranks < PortRequest::peers && NCAST_MOST_PORTS < PortRequest::ports &&
              NCAST_MOST_REGIONS < PortRequest::regions);
static_assert(sizeof(KernelPorts) <= sizeof ncast_ports::reserved);
static_assert(alignof(KernelPorts) <= alignof(ncast_ports));

}  // namespace narrowcast::channel
