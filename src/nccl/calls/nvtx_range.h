// NVTX ranges around calls, in the domain "narrowcast". Without a profiler, or with NARROWCAST_NVTX=0, a range costs
// the test of one pointer.
#pragma once

#include <vector>

#include "nccl/calls/launch.h"

namespace narrowcast::nccl {

// Spans the lifetime of the object on this thread.
class NvtxRange {
 public:
  // One executed call: "all_gather 65536 B auto". Several: "group of 3 calls", with a mark for each.
  explicit NvtxRange(const std::vector<EngineCalls>& groups);
  // A forwarded call: "all_gather 65536 B to NCCL: there is nothing to move".
  NvtxRange(const Call& forwarded, const char* why);
  ~NvtxRange();
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

}  // namespace narrowcast::nccl
