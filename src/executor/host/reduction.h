// Reductions of arrays of values. The values of the ranks are accumulated one rank after the other and rounded once.
//
// The accumulator is fp32 for float32 and narrower floats, fp64 for float64, and the type itself for integers, which
// wrap around. AVG divides the sum at the end; integers are truncated toward zero. MIN and MAX ignore NaN unless all
// values are NaN. -0 is smaller than +0.
#pragma once

#include <cstddef>

#include "executor/factor.h"
#include "narrowcast/types.h"

namespace narrowcast::executor::host {

// The type of accumulators, and their bytes. dtype: a value type.
ncast_dtype accumulator_type(ncast_dtype dtype);
inline size_t accumulator_bytes(ncast_dtype dtype) { return ncast_dtype_bytes(accumulator_type(dtype)); }

// scaled[i] = factor * values[i], computed in the type of the accumulator and rounded to dtype. Only for floats.
void scale(ncast_dtype dtype, const Factor& factor, const void* values, size_t elems, void* scaled);

// accumulator[i] = values[i]. Here and below, pointers must be aligned to their types.
void accumulate_first(ncast_dtype dtype, const void* values, size_t elems, void* accumulator);

// accumulator[i] = op(accumulator[i], values[i]).
void accumulate(ncast_dtype dtype, ncast_redop op, const void* values, size_t elems, void* accumulator);

// values[i] = accumulator[i], divided by `ranks` for AVG, rounded to dtype.
void finish(ncast_dtype dtype, ncast_redop op, int ranks, const void* accumulator, size_t elems, void* values);

}  // namespace narrowcast::executor::host
