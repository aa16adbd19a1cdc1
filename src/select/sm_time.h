// How much of the GPU a call takes from concurrent kernels: its SM time, that is its CTAs times its time. That is what
// counts if compute hides the call.
#pragma once

#include <cstdint>
#include <optional>

#include "select/call_shape.h"

namespace narrowcast::select {

// A way to run a call.
struct Way {
  Transport transport;  // packets or blocks
  ncast_codec codec;    // of the values on the link
  uint32_t max_ctas;
};
// In microseconds of an SM; not below a minimum that does not matter to concurrent kernels.
double sm_time(uint32_t ctas, double microseconds);

// The way with the least SM time among those that take at most `most_microseconds`; of ways that differ by 3% or less,
// the fastest. A codec may take 3% longer than that for values that do not shrink. nullopt: no time is known that is so
// short.
std::optional<Way> way_of_least_sm_time(const CallShape& shape, const CostModel& model, double most_microseconds);

// The CTAs of NCCL's kernel for the call, as far as they are known: for long calls over NVLink. Otherwise 0.
uint32_t ctas_of_nccl(const CallShape& shape);

}  // namespace narrowcast::select
