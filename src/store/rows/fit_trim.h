// Fits the stages in front of a coder.
#pragma once

#include "store/rows/model.h"
#include "store/rows/sample.h"

namespace narrowcast::store {

// Sets model.trim to the constant bits that shorten the sample most: of all elements, or of those that are not 0 if the
// model has a zero map. Rows with an element that has other bits are counted as raw. Before `window`, only as many low
// bits as it allows.
void fit_trim(const Sample& sample, Model& model);

}  // namespace narrowcast::store
