// The NCCL functions that the drop-in implements itself.
#pragma once

#include "nccl/abi/exports.h"

namespace narrowcast::nccl {

// The drop-in's implementation of a function; NULL when the call goes straight to the real NCCL.
void* handler(Function function);

}  // namespace narrowcast::nccl
