// The FIFO between the kernels of a rank and its proxy, in pinned host memory, zeroed at first. A thread of a kernel
// takes a ticket (0, 1, ...) by an atomic operation on device memory, waits until the slot of that ticket is free, and
// stores its request there. The proxy consumes requests in the order of their tickets. No word has two writers at a
// time, so no atomic operations on host memory are needed.
#pragma once

#include <cstdint>

#include "request.h"

namespace narrowcast::channel {

struct PortFifo {
  static constexpr uint32_t slots = 512;

  // Written by the proxy.
  alignas(64) uint64_t consumed;                       // the slots of all tickets below this are free
  alignas(64) uint64_t completed[PortRequest::peers];  // by peer: all requests for it with a ticket below are complete
  // Written by kernels.
  alignas(64) PortWords words[slots];

  // The phase bit of a ticket's slot. It alternates each time a slot is reused and starts with 1, because slots are
  // zeroed at first.
  static constexpr uint64_t phase_of(uint64_t ticket) { return (ticket / slots + 1) % 2; }
};

}  // namespace narrowcast::channel
