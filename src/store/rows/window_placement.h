// Where the vectorized coder `window` places the window of a row.
#pragma once

#include <algorithm>
#include <limits>

#include "store/rows/window_elems.h"
#include "store/rows/window_layout.h"

namespace narrowcast::store::window {

struct Placement {
  int width;
  int base;
};

// The encoder's rule in docs/format/rows.md. in_lanes: the number of values in lanes, a multiple of 32, not 0.
template <const ValueType& type>
NARROWCAST_INLINE Placement place_window(const WindowLayout& layout, const uint8_t* values, size_t in_lanes) {
  const size_t count = std::min(in_lanes, max_row_samples);
  alignas(64) uint16_t sample[max_row_samples];
  if (count == in_lanes) {
    for (size_t i = 0; i < count; ++i) sample[i] = exponent_at<type>(values, i);
  } else {
    for (size_t i = 0; i < max_row_samples; ++i) sample[i] = exponent_at<type>(values, i * in_lanes / max_row_samples);
  }

  const size_t columns = count / sample_quarters;
  uint16_t anchor = 0;
  for (size_t column = 0; column < columns; ++column) {
    uint16_t least = sample[column];
    for (size_t quarter = 1; quarter < sample_quarters; ++quarter)
      least = std::min(least, sample[quarter * columns + column]);
    anchor = std::max(anchor, least);
  }
  const auto lowest = static_cast<uint16_t>(std::max(anchor - bins_below_anchor, 0));

  uint32_t zeros = 0;
  for (size_t i = 0; i < count; ++i) zeros += sample[i] == 0 ? 1 : 0;
  // Exponents outside the bins are counted in an extra bin, which is never read.
  for (size_t i = 0; i < count; ++i) sample[i] = std::min<uint16_t>(static_cast<uint16_t>(sample[i] - lowest), bins);
  // Several histograms, so that increments of the same bin do not wait for each other.
  uint32_t histogram[4][bins + 1] = {};
  for (size_t i = 0; i < count; i += 4)
    for (size_t part = 0; part < 4; ++part) ++histogram[part][sample[i + part]];

  // below[lead + b]: samples in the bins before b. Windows may extend past the last bin.
  constexpr int lead = below_tokens, reach = 31 + above_tokens;
  int below[lead + bins + reach + 1];
  for (int i = 0; i < lead; ++i) below[i] = 0;
  uint32_t total = 0;
  for (int bin = 0; bin < bins; ++bin) {
    below[lead + bin] = static_cast<int>(total);
    for (const auto& part : histogram) total += part[bin];
  }
  for (int bin = bins; bin <= bins + reach; ++bin) below[lead + bin] = static_cast<int>(total);

  // Constant terms are left out of the costs.
  const int far_bits = 8 * layout.far_bytes();
  int zero_cost[bins];
  for (int bin = 0; bin < bins; ++bin)
    zero_cost[bin] = lowest == 0 && bin <= below_tokens ? 0 : far_bits * static_cast<int>(zeros);
  Placement best{1, 0};
  int best_cost = std::numeric_limits<int>::max();
  for (int width = layout.max_width(); width >= 1; --width) {
    const int span = (1 << width) - 1;
    // The cost in the high part, the bin in the low part: among equals the first bin wins.
    int best_key = std::numeric_limits<int>::max();
    for (int bin = 0; bin < bins; ++bin) {
      const int covered = below[lead + bin + span] - below[lead + bin];
      const int near = below[lead + bin + span + above_tokens] - below[lead + bin - below_tokens];
      // At least -256 x (4 + 16), which the offset makes positive.
      const int cost = 8192 - token_bits * covered - far_bits * near - zero_cost[bin];
      best_key = std::min(best_key, cost * bins + bin);
    }
    const int cost = best_key / bins + width * static_cast<int>(count);
    if (cost < best_cost) {
      best_cost = cost;
      best = {width, std::min(lowest + best_key % bins, (1 << type.exponent_bits) - (1 << width))};
    }
  }
  return best;
}

}  // namespace narrowcast::store::window
