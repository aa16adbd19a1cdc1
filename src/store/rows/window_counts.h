// Counts the samples of a row for the vectorized coder `window`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/window/format.h"
#include "store/rows/fast.h"
#include "store/rows/window_layout.h"

namespace narrowcast::store::window {

using codec::window::bins;

// Sets below[b], for b from 1 to `bins`, to the number of samples in the bins before b.
// bin_of: of each sample, at most `bins`. count: a multiple of 32, at most max_row_samples.
template <InstructionSet set>
void count_below(const uint8_t* bin_of, size_t count, int16_t* below);

}  // namespace narrowcast::store::window
