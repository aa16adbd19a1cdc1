// The FIFO between the kernels of a rank and its proxy, in pinned host memory; all zero at first. Kernels take a ticket
// each, from 0, by an atomic operation on device memory, wait until the slot of that ticket is free, and store the
// request. The proxy takes the requests in the order of the tickets. No word has two writers at a time, so nobody needs
// atomic operations on host memory.
#pragma once

#include <cstdint>

#include "request.h"

namespace narrowcast::channel {

struct PortFifo {
  static constexpr uint32_t slots = 512;

  // Written by the proxy.
  alignas(64) uint64_t taken;                          // all tickets below: their slots may be written again
  alignas(64) uint64_t completed[PortRequest::peers];  // all tickets below, of requests for that peer, are complete
  // Written by kernels.
  alignas(64) PortWords words[slots];

  // Of the slot, when this ticket has it: 1 the first time, when the slot is still zero.
  static constexpr uint64_t lap_of(uint64_t ticket) { return (ticket / slots + 1) % 2; }
};

}  // namespace narrowcast::channel
