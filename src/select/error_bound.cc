#include "select/error_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "narrowcast/codec.h"

namespace narrowcast::select {
namespace {

// What rounding changes, relative to the value, and at least.
struct Precision {
  double sum;       // of every step of a reduction
  double result;    // of its result, if that has fewer bits than the sum
  double smallest;  // the smallest value above 0
  double most;      // the largest finite value
};

Precision precision_of(ncast_dtype dtype) {
  constexpr double single = 0x1p-24;
  switch (dtype) {
    case NCAST_FLOAT64: return {0x1p-53, 0, 0x1p-1074, std::numeric_limits<double>::max()};
    case NCAST_FLOAT16: return {single, 0x1p-11, 0x1p-24, 65504};
    case NCAST_BFLOAT16: return {single, 0x1p-8, 0x1p-133, 0x1.fep127};
    case NCAST_FLOAT8_E4M3: return {single, 0x1p-4, 0x1p-9, 448};
    case NCAST_FLOAT8_E5M2: return {single, 0x1p-3, 0x1p-16, 57344};
    default: return {single, 0, 0x1p-149, double{std::numeric_limits<float>::max()}};
  }
}

struct Reduced {
  double error;    // of the result
  double largest;  // magnitude of the result, with its error
};

// error_of(magnitude): the error of a contribution.
template <typename ErrorOf>
Reduced reduced(ncast_redop op, const Precision& precision, std::span<const double> largest, ErrorOf&& error_of) {
  double magnitude = 0, errors = 0, least_error = std::numeric_limits<double>::infinity();
  for (const double one : largest) {
    const double error = error_of(one);
    magnitude += one + error;
    errors += error;
    least_error = std::min(least_error, error);
  }
  const auto ranks = static_cast<double>(largest.size());
  // The rank that has the result uses its own values as they are. Which rank that is depends on the place of a value.
  double error = errors - least_error;
  // Every step of the reduction is rounded, a division included.
  const double rounding = ranks * precision.sum / (1 - ranks * precision.sum) * magnitude;
  const double most_of_sums =
      precision.sum == 0x1p-24 ? double{std::numeric_limits<float>::max()} : std::numeric_limits<double>::max();
  if (!(magnitude + rounding <= most_of_sums)) return {error, std::numeric_limits<double>::infinity()};
  const double divisor = op == NCAST_AVG ? ranks : 1;
  error = (error + rounding) / divisor;
  magnitude = (magnitude + rounding) / divisor;
  const double last = precision.result * magnitude + precision.smallest;
  return {error + last, magnitude + last};
}

}  // namespace

double error_bound(operation::Operation operation, ncast_dtype dtype, ncast_redop op, ncast_codec codec,
                   std::span<const double> largest, std::optional<ncast_codec> result_codec) {
  const auto error_of = [&](double magnitude) { return ncast_codec_error_bound(codec, dtype, magnitude); };
  const auto error_of_result = [&](double magnitude) {
    return ncast_codec_error_bound(result_codec.value_or(codec), dtype, magnitude);
  };
  const double most = std::ranges::max(largest);
  if (error_of(most) == 0 && error_of_result(most) == 0) return 0;
  if (!reduces(operation)) return error_of(most);
  const Precision precision = precision_of(dtype);
  const Reduced result = reduced(op, precision, largest, error_of);
  // On GPUs every rank reduces a piece and sends it, to the root as well.
  const bool sends_results = operation != operation::Operation::reduce_scatter;
  const double again = sends_results && std::isfinite(result.largest) ? error_of_result(result.largest) : 0;
  if (result.largest + again > precision.most) return std::numeric_limits<double>::infinity();
  return result.error + again;
}

bool is_within(double relative, const CallShape& shape, ncast_codec codec) {
  // The bound relative to the largest result, if no contribution exceeds `magnitude`.
  const auto bound = [&](double magnitude) {
    const std::vector<double> largest(static_cast<size_t>(shape.ranks), magnitude);
    double result = magnitude;
    if (reduces(shape.operation) && shape.redop != NCAST_AVG) result *= shape.ranks;
    return error_bound(shape.operation, shape.dtype, shape.redop, codec, largest) / result;
  };
  // Bounds that do not shrink with the values, such as an absolute one, are not relative.
  const double of_ones = bound(1);
  return of_ones <= relative && bound(0x1p-8) <= 2 * of_ones;
}

}  // namespace narrowcast::select
