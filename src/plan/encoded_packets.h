// How the encoded packets of a plan are cut into frames. All executors do the same, so they send the same payloads.
#pragma once

#include <cstdint>

#include "plan/ir.h"

namespace narrowcast::plan {

struct EncodedPackets {
  bool exist = false;  // packets with a codec contain frames
  // The most bytes of values in a frame: the units in which loops write and read packets are multiples of it. 0: there
  // are no such loops.
  uint64_t frame_bytes = 0;
};
EncodedPackets find_encoded_packets(const Plan& plan);

}  // namespace narrowcast::plan
