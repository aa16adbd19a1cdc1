// The codecs that a call allows besides raw values, which are always allowed.
#pragma once

#include <string>
#include <vector>

#include "narrowcast/types.h"

namespace narrowcast::select {

struct AllowedCodecs {
  std::vector<ncast_codec> codecs;  // without raw; canonical
  bool forced = false;              // the only one must be used, whatever its cost

  bool contains(ncast_codec codec) const;
  // "window", "window!", "window, delta"; empty: none.
  std::string text() const;
};

// requested: the codec of a call, canonical. RAW allows none, AUTO every exact codec, and any other codec itself.
AllowedCodecs allowed_codecs(ncast_codec requested);

}  // namespace narrowcast::select
