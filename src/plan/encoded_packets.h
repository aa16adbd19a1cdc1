// How encoded packets are divided into frames, which is the same in all executors, so that they send the same payloads.
#pragma once

#include <cstdint>

#include "plan/ir.h"

namespace narrowcast::plan {

struct EncodedPackets {
  bool exist = false;  // packets with a codec contain frames
  // The largest number of bytes of values in a frame, of which the units of all loops that access packets are
  // multiples. 0: there are no such loops.
  uint64_t frame_bytes = 0;
};
EncodedPackets find_encoded_packets(const Plan& plan);

}  // namespace narrowcast::plan
