// The variables that name the host of a process, instead of what the library and the drop-in would find out.
#pragma once

#include <cstdlib>
#include <string>

namespace narrowcast::environment {

// NARROWCAST_HOSTID or else NCCL_HOSTID; empty if neither is set.
inline std::string given_host_name() {
  for (const char* const variable : {"NARROWCAST_HOSTID", "NCCL_HOSTID"})
    if (const char* const name = secure_getenv(variable); name != nullptr && *name != '\0') return name;
  return "";
}

}  // namespace narrowcast::environment
