// Wraps every entry point of the drop-in.
#pragma once

#include <exception>

#include "nccl/abi/nccl_types.h"
#include "nccl/report/log.h"

namespace narrowcast::nccl {

// Keeps exceptions from reaching the program.
template <typename Body>
int guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::exception& error) {
    log(Level::warn, "a call failed: %s", error.what());
    return internal_error;
  }
}

}  // namespace narrowcast::nccl
