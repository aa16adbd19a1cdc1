// What a rank has sent others by blocks in calls of one operation, in its device memory. The kernels add it up, so that
// what CUDA graphs replay counts, too.
#pragma once

namespace narrowcast::executor::cuda {

struct Sent {
  unsigned long long raw_bytes, wire_bytes;  // as values, and on the link
};

}  // namespace narrowcast::executor::cuda
