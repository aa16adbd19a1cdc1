// What carries bytes between hosts, as NARROWCAST_NET says.
#pragma once

#include <string>
#include <string_view>

#include "channel/network/net_plugin.h"
#include "channel/network/ucx_library.h"

namespace narrowcast::channel {

inline constexpr const char* network_variable = "NARROWCAST_NET";
// Its value, or the default.
std::string wanted_network();

// TCP if both are NULL.
struct Carrier {
  const NetPlugin* plugin = nullptr;
  const UcxLibrary* ucx = nullptr;

  // "TCP", "AWS Libfabric (version 12)", "UCX 1.22.0".
  std::string name() const;
};

// What `wanted` names, a value of the variable. auto: a plugin, or else UCX if it has a transport for InfiniBand or
// RoCE, or else TCP: why_tcp, if it is not NULL, says why. Errors: INVALID_ARGUMENT, UNSUPPORTED (it cannot be loaded).
ncast_status find_carrier(std::string_view wanted, Carrier* carrier, std::string* why_tcp = nullptr);

}  // namespace narrowcast::channel
