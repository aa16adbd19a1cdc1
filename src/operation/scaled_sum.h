// Sums of values that each rank multiplies by a factor first.
#pragma once

#include "narrowcast/types.h"

namespace narrowcast::operation {

// What tells them from other sums, where ranks have to agree. Calls pass NCAST_SUM and a factor.
inline constexpr auto scaled_sum = static_cast<ncast_redop>(5);

}  // namespace narrowcast::operation
