// What the encoder of a block knows besides its values. For host and device code.
#pragma once

#include <cstdint>

namespace narrowcast::device {

// Encoders that round at random derive their random numbers from it. It is the same when a program runs again, however
// a call is divided among warps, CTAs and messages, and different for all blocks that a communicator encodes, except
// that messages to several ranks may share it. Replays of a CUDA graph count as calls. In frames, batches and slots
// that no communicator sends, all but first_elem is 0.
struct BlockContext {
  uint64_t first_elem;  // index of the block's first value in the frame, or in the rank's values of the call
  uint32_t call;        // how many calls came before: on GPUs of those with such encoders, on CPUs of collectives, or
                        // of messages to the same rank
  uint32_t rank;        // the rank that encodes
  uint32_t stage;       // 0: the rank's own values; 1: the result of a reduction; in plans, 2 or more: values that a
                        // group (stage - 2) only passes on
};

}  // namespace narrowcast::device
