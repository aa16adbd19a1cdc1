// The codecs that a call allows besides raw values, which are always allowed.
#pragma once

#include <string>
#include <vector>

#include "select/call_shape.h"

namespace narrowcast::select {

struct AllowedCodecs {
  std::vector<ncast_codec> codecs;  // without raw; canonical
  bool forced = false;              // one of them must be used, whatever its cost

  bool contains(ncast_codec codec) const;
  bool has_lossy() const;
  // "window", "window!", "window, delta", "window, delta (one of them is forced)"; empty: none.
  std::string text() const;
};

// By the codec of the call, which is canonical: RAW allows none, AUTO every exact codec, WITHIN also the lossy ones
// that meet the budget, and any other codec itself. The codecs of users must be named. Those of a budget are in the
// order of their prior ratios.
AllowedCodecs allowed_codecs(const CallShape& shape);

bool can_code(ncast_codec codec, ncast_dtype dtype);

}  // namespace narrowcast::select
