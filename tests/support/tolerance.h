// Tolerances for the results of calls with a bounded codec.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "codec_table.h"
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

// The error bound of each value if values of these magnitudes are encoded. Bounds do not depend on non-finite values.
inline std::vector<double> error_bounds(ncast_codec codec, const ncast_codec_type& type, std::vector<double> magnitudes,
                                        Blocks blocks) {
  for (double& one : magnitudes)
    if (!std::isfinite(one)) one = 0;
  const size_t block_elems = type.block_bytes / ncast_dtype_bytes(type.dtype);
  std::vector<double> bounds = blocks == Blocks::frame ? largest_of_block(std::move(magnitudes), block_elems)
                                                       : sliding_max(magnitudes, block_elems - 1);
  // Neighbours have the same maximum.
  double largest = 0, bound = ncast_codec_error_bound(codec, type.dtype, 0);
  for (double& one : bounds) {
    if (one != largest) bound = ncast_codec_error_bound(codec, type.dtype, largest = one);
    one = bound;
  }
  return bounds;
}

// Exact results and their tolerances. An infinite tolerance accepts any result.
struct Approximate {
  Bytes exact;
  std::vector<double> tolerances;
};

inline std::vector<double> floats_of(ncast_dtype dtype, const Bytes& bytes) {
  std::vector<double> values(bytes.size() / ncast_dtype_bytes(dtype));
  for (size_t i = 0; i < values.size(); ++i) values[i] = float_at(dtype, bytes, i);
  return values;
}

// Makes the tolerances of finite values infinite if a value of the same block is not finite: codecs may make all values
// of a group NaN.
inline void accept_any_near_non_finite(const ncast_codec_type& type, const std::vector<double>& values, Blocks blocks,
                                       std::vector<double>* tolerances) {
  std::vector<double> is_near(values.size());
  for (size_t i = 0; i < values.size(); ++i) is_near[i] = std::isfinite(values[i]) ? 0 : 1;
  const size_t block_elems = type.block_bytes / ncast_dtype_bytes(type.dtype);
  is_near = blocks == Blocks::frame ? largest_of_block(std::move(is_near), block_elems)
                                    : sliding_max(is_near, block_elems - 1);
  for (size_t i = 0; i < values.size(); ++i)
    if (is_near[i] != 0 && std::isfinite(values[i])) (*tolerances)[i] = std::numeric_limits<double>::infinity();
}

// The expected result of encoding and decoding once.
inline Approximate moved_values(ncast_codec codec, const ncast_codec_type& type, const Bytes& sent,
                                Blocks blocks = Blocks::call) {
  const std::vector<double> values = floats_of(type.dtype, sent);
  std::vector<double> magnitudes = values;
  for (double& one : magnitudes) one = std::abs(one);
  Approximate result = {sent, error_bounds(codec, type, magnitudes, blocks)};
  accept_any_near_non_finite(type, values, blocks, &result.tolerances);
  return result;
}

// The expected result of a reduction: the inputs are encoded, reduced in rank order, and the result is encoded again.
inline Approximate reduced_values(ncast_codec codec, const ncast_codec_type& type, ncast_redop op,
                                  const std::vector<Bytes>& inputs) {
  const bool narrow = type.dtype != NCAST_FLOAT32 && type.dtype != NCAST_FLOAT64;
  const int mantissa_bits = narrow ? format_of(type.dtype)->mantissa_bits : type.dtype == NCAST_FLOAT32 ? 23 : 52;
  const double most = type.dtype == NCAST_FLOAT64    ? std::numeric_limits<double>::max()
                      : type.dtype == NCAST_FLOAT16  ? 65504
                      : type.dtype == NCAST_BFLOAT16 ? 0x1.fep127
                                                     : double{std::numeric_limits<float>::max()};
  Approximate result = {reduced(type.dtype, op, inputs), {}};
  const auto ranks = static_cast<double>(inputs.size());
  const size_t elems = result.exact.size() / ncast_dtype_bytes(type.dtype);
  // For each value: upper bounds of the magnitude of the combined inputs, with coding errors and without.
  const bool multiplies = op == NCAST_PROD, selects = op == NCAST_MIN || op == NCAST_MAX;
  std::vector<double> with_errors(elems, multiplies ? 1.0 : 0.0), without = with_errors;
  const auto combine = [&](double& total, double one) {
    total = multiplies ? total * one : selects ? std::max(total, one) : total + one;
  };
  std::vector<double> errors(elems, 0.0);
  std::vector<char> finite(elems, 1);
  for (const Bytes& input : inputs) {
    const Approximate one = moved_values(codec, type, input);
    for (size_t i = 0; i < elems; ++i) {
      const double magnitude = std::abs(float_at(type.dtype, input, i));
      if (!std::isfinite(magnitude)) {
        finite[i] = 0;
        continue;
      }
      combine(with_errors[i], magnitude + one.tolerances[i]);
      combine(without[i], magnitude);
      errors[i] = selects ? std::max(errors[i], one.tolerances[i]) : errors[i] + one.tolerances[i];
    }
  }
  const double divisor = op == NCAST_AVG ? ranks : 1, unit = std::ldexp(1, -mantissa_bits);
  std::vector<char> may_overflow(elems, 0);  // because of coding errors
  for (size_t i = 0; i < elems; ++i) {
    if (multiplies) errors[i] = with_errors[i] - without[i];
    // Every step of the accumulation, and the result, is rounded.
    errors[i] += (ranks + 1) * unit * with_errors[i] + std::ldexp(unit, -126);
    with_errors[i] *= 1 + (ranks + 1) * unit;
    may_overflow[i] = with_errors[i] >= most;
    errors[i] /= divisor;
    with_errors[i] = std::min(with_errors[i], most) / divisor;
  }
  result.tolerances = error_bounds(codec, type, with_errors, Blocks::call);
  for (size_t i = 0; i < elems; ++i) {
    result.tolerances[i] += errors[i];
    // 0 times infinity is NaN, but a tiny value times infinity is infinity.
    if (may_overflow[i] || (multiplies && !finite[i]) || with_errors[i] + result.tolerances[i] >= most)
      result.tolerances[i] = std::numeric_limits<double>::infinity();
  }
  // Inputs near values that are not finite may be NaN, and so may results near these.
  std::vector<double> certain = floats_of(type.dtype, result.exact);
  for (size_t i = 0; i < elems; ++i)
    if (std::isinf(errors[i])) certain[i] = std::numeric_limits<double>::infinity();
  accept_any_near_non_finite(type, certain, Blocks::call, &result.tolerances);
  // What is not finite must remain so.
  if (!multiplies)
    for (size_t i = 0; i < elems; ++i)
      if (!std::isfinite(float_at(type.dtype, result.exact, i)) && !finite[i]) result.tolerances[i] = 0;
  return result;
}

// Whether results are within their tolerances. NaN and infinity must be preserved, except that infinities may become
// NaN.
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
