// What a rank multiplies its values by before they are summed. For host and device code.
#pragma once

namespace narrowcast::executor {

struct Factor {
  double value;           // used if in_memory is NULL
  const void* in_memory;  // one value of the call's type, read when the call runs: GPUs read it from device memory
};

}  // namespace narrowcast::executor
