// How far the results of a call may be from exact ones, by its codec and by how the library runs it.
#pragma once

#include <optional>
#include <span>

#include "narrowcast/types.h"
#include "operation/operation.h"
#include "select/call_shape.h"

namespace narrowcast::select {

// The largest absolute error of a finite value in the result.
//   codec: of the values on the link; without a flag, not AUTO
//   result_codec: of the results of an all_reduce; nullopt: the same
//   largest: for each rank, the largest finite magnitude of the values that it contributes
// Data that is only moved is encoded once. A reduction decodes the contributions of all ranks but the one that has the
// sum, adds them in the type of sums, and rounds once; all but a reduce-scatter then encode the result. 0: the codec
// restores values of this type exactly, so that the result is the same as without it. Infinity: it may overflow.
// op: NCAST_SUM or NCAST_AVG, unless the codec is exact.
double error_bound(operation::Operation operation, ncast_dtype dtype, ncast_redop op, ncast_codec codec,
                   std::span<const double> largest, std::optional<ncast_codec> result_codec = std::nullopt);

// Whether the results of a call with this codec meet the error budget `relative`, as ncast_codec defines it.
bool is_within(double relative, const CallShape& shape, ncast_codec codec);

}  // namespace narrowcast::select
