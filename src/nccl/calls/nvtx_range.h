// Ranges of NVTX about calls that are taken or forwarded, in a domain of Narrowcast's: what profilers show of the drop-in.
// Without a profiler, or with NARROWCAST_NVTX=0, they are a look at a pointer.
#pragma once

#include <vector>

#include "nccl/calls/launch.h"

namespace narrowcast::nccl {

// From its making to its end, on this thread.
class Range {
 public:
  // "all_gather 65536 B auto"; of several, "group of 3 taken calls", with a mark each.
  explicit Range(const std::vector<TakenCalls>& taken);
  // "all_gather 65536 B to NCCL: there is nothing to move".
  Range(const Call& forwarded, const char* why);
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace narrowcast::nccl
