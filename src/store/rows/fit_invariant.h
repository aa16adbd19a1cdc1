// Fits masks and clusters of the coder `invariant`.
#pragma once

#include "store/rows/model.h"
#include "store/rows/sample.h"

namespace narrowcast::store {

// How many clusters are compared with one.
inline constexpr uint32_t tried_clusters = 8;

// Sets the chunk size, masks and values of the model. chunk_bytes and clusters of 0 are chosen: those that code the
// sample shortest. Deterministic, with any number of threads; 0: as many as CPUs that this thread may use.
void fit_invariant(const Sample& sample, uint32_t chunk_bytes, uint32_t clusters, int threads, Model& model);

// Whether a zero map in front of `invariant` can save bits. If not, dense rows most often, nobody need fit one.
bool zero_map_can_save(const Sample& sample);

}  // namespace narrowcast::store
