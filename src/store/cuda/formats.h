// Translates the model of a table for the gather kernels.
#pragma once

#include "store/cuda/gather_arguments.h"
#include "store/rows/model.h"

namespace narrowcast::store::cuda {

// Masks and values of `invariant` point into the model.
struct TableFormat {
  RowFormat row;
  CoderFormat coder;
};
TableFormat format_of(const Model& model);

}  // namespace narrowcast::store::cuda
