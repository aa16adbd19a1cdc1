// Fits masks and clusters of the coder `invariant`.
#pragma once

#include "store/rows/model.h"
#include "store/rows/sample.h"

namespace narrowcast::store {

// Sets the chunk size, masks and values of the model. chunk_bytes and clusters of 0 are chosen: those that code the
// sample shortest. Deterministic, with any number of threads; 0: as many as CPUs that this thread may use.
void fit_invariant(const Sample& sample, uint32_t chunk_bytes, uint32_t clusters, int threads, Model& model);

}  // namespace narrowcast::store
