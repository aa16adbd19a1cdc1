// Where the vectorized coder `window` places the window of a row.
#pragma once

#include <algorithm>
#include <limits>

#include "store/rows/window_counts.h"
#include "store/rows/window_elems.h"
#include "store/rows/window_layout.h"

namespace narrowcast::store::window {

struct Placement {
  int width;
  int base;
};

// The exponents of every step-th value.
template <const ValueType& type, size_t step>
NARROWCAST_INLINE void sample_evenly(const uint8_t* values, Exponent<type>* __restrict sample) {
  for (size_t i = 0; i < max_row_samples; ++i)
    sample[i] = static_cast<Exponent<type>>(exponent_at<type>(values, i * step));
}

// The exponents of the values that the encoder looks at. Returns their number, a multiple of 32.
template <const ValueType& type>
NARROWCAST_INLINE size_t take_samples(const uint8_t* values, size_t in_lanes, Exponent<type>* __restrict sample) {
  if (in_lanes < max_row_samples) {
    for (size_t i = 0; i < in_lanes; ++i) sample[i] = static_cast<Exponent<type>>(exponent_at<type>(values, i));
    return in_lanes;
  }
  // Constant steps are vectorized.
  switch (in_lanes) {
    case max_row_samples: sample_evenly<type, 1>(values, sample); break;
    case 2 * max_row_samples: sample_evenly<type, 2>(values, sample); break;
    case 4 * max_row_samples: sample_evenly<type, 4>(values, sample); break;
    case 8 * max_row_samples: sample_evenly<type, 8>(values, sample); break;
    default:
      for (size_t i = 0; i < max_row_samples; ++i)
        sample[i] = static_cast<Exponent<type>>(exponent_at<type>(values, i * in_lanes / max_row_samples));
  }
  return max_row_samples;
}

// Types with the same exponent share the function of their path.
template <const ValueType& type>
constexpr const ValueType& same_exponent = type.exponent_bits == 8   ? bfloat16
                                           : type.exponent_bits == 5 ? float16
                                                                     : type;

// The encoder's rule in docs/format/rows.md, for the exponents of `count` samples. All numbers fit 16 bits, so that a
// vector has many of them. Of `type`, only the exponent matters.
template <const ValueType& type, InstructionSet set>
NARROWCAST_INLINE Placement place_among(const Exponent<type>* __restrict sample, size_t count) {
  const size_t columns = count / sample_quarters;
  Exponent<type> anchor = 0;
  for (size_t column = 0; column < columns; ++column) {
    Exponent<type> least = sample[column];
    for (size_t quarter = 1; quarter < sample_quarters; ++quarter)
      least = std::min(least, sample[quarter * columns + column]);
    anchor = std::max(anchor, least);
  }
  const auto lowest = static_cast<Exponent<type>>(std::max(anchor - bins_below_anchor, 0));

  uint16_t zeros = 0;
  for (size_t i = 0; i < count; ++i) zeros = static_cast<uint16_t>(zeros + (sample[i] == 0 ? 1 : 0));
  // Exponents outside the bins have the number after the last bin.
  alignas(64) uint8_t bin_of[max_row_samples];
  for (size_t i = 0; i < count; ++i) {
    const Exponent<type> outside = sample[i] < lowest ? static_cast<Exponent<type>>(~0u) : Exponent<type>{0};
    const auto bin = static_cast<Exponent<type>>(static_cast<Exponent<type>>(sample[i] - lowest) | outside);
    bin_of[i] = static_cast<uint8_t>(std::min<Exponent<type>>(bin, Exponent<type>{bins}));
  }

  // below[lead + b]: samples in the bins before b. Windows may extend past the last bin.
  constexpr int lead = below_tokens, reach = 31 + above_tokens;
  alignas(64) int16_t below[lead + bins + reach + 1];
  for (int i = 0; i <= lead; ++i) below[i] = 0;
  count_below<set>(bin_of, count, below + lead);
  const int16_t total = below[lead + bins];
  for (int bin = bins + 1; bin <= bins + reach; ++bin) below[lead + bin] = total;

  // Constant terms are left out of the costs.
  const auto far_bits = static_cast<int16_t>(8 * type.far_bytes());
  const auto escape_bits = static_cast<int16_t>(escape_cost(type.exponent_bits, count));
  constexpr int max_width = type.max_width();
  int16_t zero_cost[bins];
  for (int bin = 0; bin < bins; ++bin)
    zero_cost[bin] = static_cast<int16_t>(lowest == 0 && bin <= below_tokens ? 0 : far_bits * zeros);
  // Costs are at least -256 x (6 + 16) and at most 256 x 5.
  int16_t costs[max_width][bins];
  int16_t least[bins];
  for (int bin = 0; bin < bins; ++bin) least[bin] = std::numeric_limits<int16_t>::max();
  for (int width = 1; width <= max_width; ++width) {
    const int span = (1 << width) - 1;
    const auto codes = static_cast<int16_t>(width * static_cast<int>(count));
    for (int bin = 0; bin < bins; ++bin) {
      const auto covered = static_cast<int16_t>(below[lead + bin + span] - below[lead + bin]);
      const auto near =
          static_cast<int16_t>(below[lead + bin + span + above_tokens] - below[lead + bin - below_tokens]);
      const auto cost = static_cast<int16_t>(codes - escape_bits * covered - far_bits * near - zero_cost[bin]);
      costs[width - 1][bin] = cost;
      least[bin] = std::min(least[bin], cost);
    }
  }
  int16_t best = least[0];
  for (int bin = 1; bin < bins; ++bin) best = std::min(best, least[bin]);
  // Among equals the larger width, then the lower bin.
  constexpr int16_t none = max_width * bins;
  int16_t ranks[bins];
  for (int bin = 0; bin < bins; ++bin) ranks[bin] = none;
  for (int width = 1; width <= max_width; ++width) {
    for (int16_t bin = 0; bin < bins; ++bin) {
      const auto rank = static_cast<int16_t>((max_width - width) * bins + bin);
      const int16_t here = costs[width - 1][bin] == best ? rank : none;
      ranks[bin] = std::min(ranks[bin], here);
    }
  }
  int16_t first = none;
  for (int bin = 0; bin < bins; ++bin) first = std::min(first, ranks[bin]);
  const int width = max_width - first / bins;
  return {width, std::min(lowest + first % bins, (1 << type.exponent_bits) - (1 << width))};
}

// in_lanes: the number of values in lanes, a multiple of 32, not 0.
template <typename Path, const ValueType& type>
NARROWCAST_INLINE Placement place_window(const uint8_t* values, size_t in_lanes) {
  alignas(64) Exponent<type> sample[max_row_samples];
  const size_t count = take_samples<type>(values, in_lanes, sample);
  return Path::template place<same_exponent<type>>(sample, count);
}

}  // namespace narrowcast::store::window
