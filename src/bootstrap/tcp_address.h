// Where a process listens, as bytes that users carry to other hosts.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "narrowcast/types.h"

namespace narrowcast::bootstrap {

// Plain bytes. May come from a stranger: socket_address() checks.
struct TcpAddress {
  uint8_t version;      // of IP: 4 or 6
  uint8_t reserved[3];  // 0
  uint32_t port;
  uint32_t scope;  // of a link-local IPv6 address, on the host that made it
  uint8_t ip[16];  // network order; IPv4 has the first four
  uint32_t pid;    // of the process that listens, for messages

  // "10.0.0.1:4242" or "[fd00::2]:4242".
  std::string text() const;
  // Returns its length, or 0 when this is no address.
  socklen_t socket_address(sockaddr_storage* storage) const;
  static TcpAddress from(const sockaddr* address);
};

static_assert(sizeof(TcpAddress) == 32, "fits into a unique id, without padding");

// Addresses of this host to listen at, best first: of the interfaces that are up, those whose names start with
// NARROWCAST_SOCKET_IFNAME if it is set; otherwise all, loopback last and those of virtual bridges before it. Ports are
// 0. SYSTEM_ERROR when there is none.
ncast_status listening_addresses(std::vector<TcpAddress>* addresses);

}  // namespace narrowcast::bootstrap
