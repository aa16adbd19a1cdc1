// Shared by functions of the C API that require a communicator of GPUs.
#pragma once

#include <string>
#include <utility>

#include "executor/cuda/communicator.h"
#include "executor/registry.h"
#include "status/error.h"

namespace narrowcast::executor::cuda {

// Runs body(communicator) and puts the function's name in front of its error message.
template <typename Body>
ncast_status with_communicator(const char* function, ncast_comm* comm, Body body) {
  return guarded(function, [&] {
    CommUse use;
    if (ncast_status status = use.begin(function, comm)) return status;
    if (comm->backend() != NCAST_BACKEND_CUDA)
      return fail(NCAST_UNSUPPORTED, "%s: the communicator does not use the CUDA backend", function);
    if (comm->has_levels())
      return fail(NCAST_UNSUPPORTED, "%s: communicators of two levels do not have this; %s", function, one_level_hint);
    const ncast_status status = body(static_cast<Communicator&>(*comm));
    if (status == NCAST_OK) return status;
    const std::string message = ncast_last_error();
    return fail(status, "%s: %s", function, message.c_str());
  });
}

inline ncast_status null_argument(const char* argument) { return fail(NCAST_INVALID_ARGUMENT, "%s is NULL", argument); }

}  // namespace narrowcast::executor::cuda
