// Predicted times of calls between ranks on several hosts, for cost models without measured ones.
#pragma once

#include "select/call_shape.h"

namespace narrowcast::select {

// What a link between two hosts is assumed to carry, unless the cost model says it: Gbit/s.
inline constexpr double assumed_network_gbps = 10;

// The link carries the bytes of a rank while one core encodes and decodes them: the longer of the two decides. Before
// and after, the first chunk is encoded and the last one decoded. GPUs encode faster than any network carries.
// codec: raw, or one that encodes the type of the call.
Cost network_cost(const CallShape& shape, ncast_codec codec, double gbps);

}  // namespace narrowcast::select
