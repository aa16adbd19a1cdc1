// Barriers for execution on the host. A word has the arrivals of a phase, those that are missing, and the parity of the
// current phase.
#pragma once

#include "executor/cuda/generated/simt/cuda.h"

namespace narrowcast::device {

inline void barrier_init(uint64_t* barrier, uint32_t arrivals) { *barrier = arrivals | uint64_t{arrivals} << 16; }
inline void barrier_arrive(uint64_t* barrier) {
  *barrier -= 1 << 16;
  if ((*barrier >> 16 & 0xffff) == 0) *barrier = (*barrier + ((*barrier & 0xffff) << 16)) ^ uint64_t { 1 } << 32;
}
inline void barrier_wait(uint64_t* barrier, uint32_t parity) {
  while ((*barrier >> 32 & 1) == parity) simt::poll();
  __syncwarp();
}

}  // namespace narrowcast::device
