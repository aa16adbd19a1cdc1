// Gives tests and benchmarks access to the vectorized block coder for each instruction set.
#pragma once

#include <span>

#include "codec/window/block.h"

namespace narrowcast::codec::window {

struct VectorPath {
  const char* name;
  BlockCoder coder;
};

// The paths that this machine supports, from the baseline to the best, which `vectorized` uses.
std::span<const VectorPath> vector_paths();

}  // namespace narrowcast::codec::window
