// The address of a hub, in a form that is part of the unique id.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bootstrap/descriptor.h"
#include "narrowcast/types.h"

namespace narrowcast::bootstrap {

// Copied as bytes between hosts. The content may be invalid; socket_address() checks it.
struct TcpAddress {
  uint8_t version;      // of IP: 4 or 6
  uint8_t reserved[3];  // 0
  uint32_t port;
  uint32_t scope;  // of a link-local IPv6 address, as numbered by the host that listens
  uint8_t ip[16];  // in network order; IPv4 uses the first four
  uint32_t pid;    // of the process that listens; for error messages

  // "10.0.0.1:4242" or "[fd00::2]:4242".
  std::string text() const;
  // "10.0.0.1" or "fd00::2".
  std::string ip_text() const;
  // Returns the length of *storage, or 0 if this is not a valid address.
  socklen_t socket_address(sockaddr_storage* storage) const;
  static TcpAddress from(const sockaddr* address);
};

static_assert(sizeof(TcpAddress) == 32, "fits into a unique id, without padding");

// Where the ranks may be: only on this host, in its network namespace, or anywhere.
enum class Reach { local, anywhere };

// A hash of this host and its network namespace, in which all processes reach each other by loopback. If it is unknown,
// a random number, which equals that of no other process.
uint64_t own_network();

struct InterfaceAddress {
  std::string interface;
  TcpAddress address;
};

// The interfaces to listen at, in NCCL's syntax: prefixes of names, separated by commas; `=eth0,eth1` are whole names,
// `^docker,lo` and `^=lo` are excluded. Empty: any. From NARROWCAST_SOCKET_IFNAME or, for ranks anywhere,
// NCCL_SOCKET_IFNAME.
std::string wanted_interfaces(Reach reach);

// Addresses of this host to listen at, best first, with port 0. Only interfaces that are up and that `interfaces` names
// are listed. Virtual bridges come after other interfaces, loopback last; for local ranks, and without `interfaces`,
// only loopback. Error: SYSTEM_ERROR if there is none.
ncast_status listening_addresses(Reach reach, const std::string& interfaces, std::vector<InterfaceAddress>* addresses);

// Listens at the first of these addresses that it can, without blocking. Error: SYSTEM_ERROR.
ncast_status listen(Reach reach, const std::string& interfaces, Descriptor* listener, TcpAddress* address);

}  // namespace narrowcast::bootstrap
