// Tolerances for the results of calls with a bounded codec.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "codec_table.h"
#include "narrowcast/explain.h"
#include "oracle.h"

namespace narrowcast::testing {

// For each value, the maximum of it and its neighbours up to `radius` values away.
inline std::vector<double> sliding_max(const std::vector<double>& values, size_t radius) {
  std::vector<double> result(values.size(), 0.0);
  const size_t width = 2 * radius + 1;
  std::vector<double> largest(values.size() + 2 * radius, 0.0);  // at i: the maximum of the `span` values from i on
  std::copy(values.begin(), values.end(), largest.begin() + static_cast<std::ptrdiff_t>(radius));
  size_t span = 1;
  for (; 2 * span <= width; span *= 2)
    for (size_t i = 0; i + span < largest.size(); ++i) largest[i] = std::max(largest[i], largest[i + span]);
  for (size_t i = 0; i < result.size(); ++i) result[i] = std::max(largest[i], largest[i + width - span]);
  return result;
}

// For each value, the maximum of its block, if blocks begin with the first value.
inline std::vector<double> largest_of_block(std::vector<double> values, size_t block_elems) {
  for (size_t first = 0; first < values.size(); first += block_elems) {
    const auto block = std::span(values).subspan(first, std::min(block_elems, values.size() - first));
    std::ranges::fill(block, std::ranges::max(block));
  }
  return values;
}

// Where blocks begin. frame: at the first value. call: anywhere, because calls divide values into pieces and chunks.
enum class Blocks { frame, call };

// The finite magnitudes of values, and 0 for others, on which no bound depends.
inline std::vector<double> magnitudes_of(ncast_dtype dtype, const Bytes& bytes) {
  std::vector<double> values(bytes.size() / ncast_dtype_bytes(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    const double magnitude = std::abs(float_at(dtype, bytes, i));
    if (std::isfinite(magnitude)) values[i] = magnitude;
  }
  return values;
}

// Exact results and their tolerances. An infinite tolerance accepts any result.
struct Approximate {
  Bytes exact;
  std::vector<double> tolerances;
};

// 1 for values that are not finite, and 0 for others.
inline std::vector<double> non_finite(ncast_dtype dtype, const Bytes& bytes) {
  std::vector<double> marks(bytes.size() / ncast_dtype_bytes(dtype));
  for (size_t i = 0; i < marks.size(); ++i) marks[i] = std::isfinite(float_at(dtype, bytes, i)) ? 0 : 1;
  return marks;
}

// The expected result of encoding and decoding once. If a value of a block is not finite, codecs may make others NaN.
inline Approximate moved_values(ncast_codec codec, const ncast_codec_type& type, const Bytes& sent,
                                Blocks blocks = Blocks::call) {
  const size_t block_elems = type.block_bytes / ncast_dtype_bytes(type.dtype);
  const auto largest_nearby = [&](std::vector<double> values) {
    return blocks == Blocks::frame ? largest_of_block(std::move(values), block_elems)
                                   : sliding_max(values, block_elems - 1);
  };
  const std::vector<double> own_marks = non_finite(type.dtype, sent), marks = largest_nearby(own_marks);
  std::vector<double> bounds = largest_nearby(magnitudes_of(type.dtype, sent));
  // Neighbours have the same maximum.
  double largest = 0, bound = ncast_codec_error_bound(codec, type.dtype, 0);
  for (double& one : bounds) {
    if (one != largest) bound = ncast_codec_error_bound(codec, type.dtype, largest = one);
    one = bound;
  }
  for (size_t i = 0; i < bounds.size(); ++i)
    if (marks[i] > own_marks[i]) bounds[i] = std::numeric_limits<double>::infinity();
  return {sent, bounds};
}

// The expected result of a reduction. Values near one that is not finite may be NaN, as above.
inline Approximate reduced_values(ncast_operation operation, ncast_codec codec, const ncast_codec_type& type,
                                  ncast_redop op, const std::vector<Bytes>& inputs) {
  Approximate result = {reduced(type.dtype, op, inputs), {}};
  const size_t elems = result.exact.size() / ncast_dtype_bytes(type.dtype), ranks = inputs.size();
  // A value is encoded together with those of its block, and their sums with those of their blocks.
  const size_t radius = 2 * (type.block_bytes / ncast_dtype_bytes(type.dtype) - 1);
  std::vector<std::vector<double>> largest;
  std::vector<double> marks(elems);
  for (const Bytes& input : inputs) {
    largest.push_back(sliding_max(magnitudes_of(type.dtype, input), radius));
    std::ranges::transform(marks, non_finite(type.dtype, input), marks.begin(),
                           [](double one, double other) { return std::max(one, other); });
  }
  const std::vector<double> marks_nearby = sliding_max(marks, radius);
  std::vector<double> at(ranks), before;
  double bound = 0;
  for (size_t i = 0; i < elems; ++i) {
    for (size_t rank = 0; rank < ranks; ++rank) at[rank] = largest[rank][i];
    if (at != before)
      bound = ncast_call_error_bound(operation, type.dtype, op, codec, static_cast<int>(ranks), at.data());
    before = at;
    const bool is_unknown = marks[i] == 0 && marks_nearby[i] != 0;
    result.tolerances.push_back(is_unknown ? std::numeric_limits<double>::infinity() : bound);
  }
  return result;
}

// Whether results are within their tolerances. What is not finite must remain so; infinities may become NaN.
inline bool is_near(ncast_dtype dtype, const Bytes& found, const Approximate& expected) {
  if (found.size() != expected.exact.size()) return false;
  for (size_t i = 0; i < expected.tolerances.size(); ++i) {
    const double own = float_at(dtype, found, i), right = float_at(dtype, expected.exact, i);
    if (std::isinf(expected.tolerances[i])) continue;
    if (std::isfinite(right) ? !(std::abs(own - right) <= expected.tolerances[i]) : own != right && !std::isnan(own))
      return false;
  }
  return true;
}

}  // namespace narrowcast::testing
