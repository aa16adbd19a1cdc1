// Replaced by the functions for execution on the host.
#pragma once

#include "executor/cuda/generated/simt/cuda.h"

namespace narrowcast::device {

inline void prefetch_to_l2(const void*, uint32_t) {}

}  // namespace narrowcast::device
