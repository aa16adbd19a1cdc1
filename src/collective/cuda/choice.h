// How a call is run: by packets or blocks, and coded or raw. Decided by what all ranks know, and nothing else.
#pragma once

#include <cstdint>

#include "collective/call.h"

namespace narrowcast::collective::cuda {

// What every rank knows of a call. bytes: of its largest piece, that is of what one rank sends another: for all_reduce of
// the whole vector, for all_to_all_v unknown and 0.
struct CallShape {
  Operation operation;
  ncast_dtype dtype;
  ncast_codec codec;  // as asked for
  uint64_t bytes;
  int ranks;
  bool over_host;  // payloads go through host memory
};

struct Choice {
  bool packets;
  ncast_codec codec;   // RAW or WINDOW
  const char* reason;  // a sentence
};

Choice choose(const CallShape& shape);

}  // namespace narrowcast::collective::cuda
