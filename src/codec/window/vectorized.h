// The instruction sets that the vectorized block coder is built for, so that tests and benchmarks reach each of them.
#pragma once

#include <span>

#include "codec/window/block.h"

namespace narrowcast::codec::window {

struct VectorPath {
  const char* name;
  BlockCoder coder;
};

// Those that this machine can run, the baseline first; `vectorized` is the last.
std::span<const VectorPath> vector_paths();

}  // namespace narrowcast::codec::window
