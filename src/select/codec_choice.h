// Which codec a call uses between those that it allows, and why.
#pragma once

#include "select/call_shape.h"

namespace narrowcast::select {

// What is not asked for is used if it saves at least this share of the time.
inline constexpr double least_saved = 0.03;

struct CodecChoice {
  ncast_codec codec;
  const char* reason;
};

// Chooses between raw values and the allowed codecs. coded_transport: of encoded values. raw: the candidate of raw
// ones. costs: of the call.
CodecChoice choose_codec(const CallShape& shape, Transport coded_transport, size_t raw, const Costs& costs,
                         const CostModel& model);

// For the codec of a call whose ranks do not know each other's counts: one with pieces for whose time only bandwidth
// counts.
CallShape with_long_pieces(CallShape shape);

}  // namespace narrowcast::select
