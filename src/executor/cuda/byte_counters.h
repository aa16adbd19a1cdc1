// Bytes that a rank has sent in calls of one operation by blocks. In device memory, because the kernels update them:
// replays of CUDA graphs count too.
#pragma once

namespace narrowcast::executor::cuda {

struct ByteCounters {
  unsigned long long raw_bytes, wire_bytes;  // size of the values; bytes on the link
};

}  // namespace narrowcast::executor::cuda
