// The predicted times of all ways to run a call.
#pragma once

#include "select/call_shape.h"

namespace narrowcast::select {

// The predicted times of all candidates for a call. A codec that the call allows and that was not measured has times
// derived from those of a measured one, by their prior ratios.
Costs costs_of(const CallShape& shape, const CostModel& model);

// A call with two codecs is measured as one with that of its contributions or, if these are raw, of its results.
CallShape with_one_codec(CallShape shape);

// Why packets cannot carry the call, or NULL.
const char* why_no_packets(const CallShape& shape);

uint32_t most_ctas_of_packets(const CallShape& shape, uint32_t max_ctas);

}  // namespace narrowcast::select
