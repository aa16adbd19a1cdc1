// Reducing blocks of values: an accumulator takes the ranks' values one rank after the other, then rounds once.
//
// The accumulator is fp32 for the narrow floats and float32, fp64 for float64, the type itself for integers, which wrap
// around. AVG divides the sum at the end, integers with truncation toward zero. MIN and MAX ignore NaN unless all
// values are NaN; between equals (-0 and +0) the lowest rank's value stays.
#pragma once

#include <cstddef>

#include "narrowcast/types.h"

namespace narrowcast::executor::host {

// Bytes of an accumulator for one value; 0 when dtype is not a value type.
size_t accumulator_bytes(ncast_dtype dtype);

// accumulator[i] = values[i]. Pointers are aligned to their types here and below.
void accumulate_first(ncast_dtype dtype, const void* values, size_t elems, void* accumulator);

// accumulator[i] = op(accumulator[i], values[i]).
void accumulate(ncast_dtype dtype, ncast_redop op, const void* values, size_t elems, void* accumulator);

// values[i] = the accumulator, divided by `ranks` for AVG, rounded to dtype.
void finish(ncast_dtype dtype, ncast_redop op, int ranks, const void* accumulator, size_t elems, void* values);

}  // namespace narrowcast::executor::host
