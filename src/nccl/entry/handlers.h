// The NCCL functions that the drop-in implements itself.
#pragma once

#include "nccl/abi/exports.h"

namespace narrowcast::nccl {

// The drop-in's implementation of a function; NULL if there is none. In call_handlers.cc and communicator_handlers.cc.
void* call_handler(Function function);
void* communicator_handler(Function function);

inline void* handler(Function function) {
  void* const found = call_handler(function);
  return found != nullptr ? found : communicator_handler(function);
}

}  // namespace narrowcast::nccl
