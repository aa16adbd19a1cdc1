#include "bootstrap/tcp_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string_view>

#include "bootstrap/host.h"
#include "status/error.h"
#include "status/fnv1a.h"
#include "status/system_error.h"

namespace narrowcast::bootstrap {
namespace {

// Bridges between the containers of this host. Other hosts cannot reach their addresses.
bool is_virtual(std::string_view name) {
  for (const std::string_view prefix : {"docker", "br-", "virbr", "veth"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

bool is_named(std::string_view name, std::string_view interfaces) {
  const bool excluded = interfaces.starts_with('^');
  if (excluded) interfaces.remove_prefix(1);
  const bool exact = interfaces.starts_with('=');
  if (exact) interfaces.remove_prefix(1);
  bool found = false;
  while (!interfaces.empty()) {
    const std::string_view next = interfaces.substr(0, interfaces.find(','));
    found = found || (exact ? name == next : !next.empty() && name.starts_with(next));
    interfaces.remove_prefix(std::min(next.size() + 1, interfaces.size()));
  }
  return found != excluded;
}

// Lower is better.
int cost_of(const ifaddrs& entry) {
  int cost = 0;
  if ((entry.ifa_flags & IFF_LOOPBACK) != 0) {
    cost = 20;
  } else if (is_virtual(entry.ifa_name)) {
    cost = 10;
  }
  if (entry.ifa_addr->sa_family == AF_INET6) {
    sockaddr_in6 address;
    std::memcpy(&address, entry.ifa_addr, sizeof address);
    // A link-local address needs the interface of the connecting host, which this host does not know.
    cost += IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr) ? 15 : 1;
  }
  return cost;
}

}  // namespace

std::string TcpAddress::text() const {
  return (version == 4 ? ip_text() : "[" + ip_text() + "]") + ":" + std::to_string(port);
}

std::string TcpAddress::ip_text() const {
  char text[INET6_ADDRSTRLEN] = "?";
  inet_ntop(version == 4 ? AF_INET : AF_INET6, ip, text, sizeof text);
  return text;
}

socklen_t TcpAddress::socket_address(sockaddr_storage* storage) const {
  std::memset(storage, 0, sizeof *storage);
  if (port > UINT16_MAX) return 0;
  if (version == 4) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    std::memcpy(&address.sin_addr, ip, sizeof address.sin_addr);
    std::memcpy(storage, &address, sizeof address);
    return sizeof address;
  }
  if (version == 6) {
    sockaddr_in6 address = {};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(static_cast<uint16_t>(port));
    address.sin6_scope_id = scope;
    std::memcpy(&address.sin6_addr, ip, sizeof address.sin6_addr);
    std::memcpy(storage, &address, sizeof address);
    return sizeof address;
  }
  return 0;
}

TcpAddress TcpAddress::from(const sockaddr* given) {
  TcpAddress result = {};
  result.pid = static_cast<uint32_t>(getpid());
  if (given->sa_family == AF_INET) {
    sockaddr_in address;
    std::memcpy(&address, given, sizeof address);
    result.version = 4;
    result.port = ntohs(address.sin_port);
    std::memcpy(result.ip, &address.sin_addr, sizeof address.sin_addr);
  } else if (given->sa_family == AF_INET6) {
    sockaddr_in6 address;
    std::memcpy(&address, given, sizeof address);
    result.version = 6;
    result.port = ntohs(address.sin6_port);
    result.scope = address.sin6_scope_id;
    std::memcpy(result.ip, &address.sin6_addr, sizeof address.sin6_addr);
  }
  return result;
}

uint64_t own_network() {
  const std::string host = boot_id();
  char name[64];
  const ssize_t bytes = readlink("/proc/self/ns/net", name, sizeof name);
  if (host.empty() || bytes <= 0) {
    std::random_device random;
    return uint64_t{random()} << 32 | random();
  }
  return fnv1a(host + std::string(name, static_cast<size_t>(bytes)));
}

std::string wanted_interfaces(Reach reach) {
  for (const char* const variable : {"NARROWCAST_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}) {
    const char* const wanted = secure_getenv(variable);
    if (wanted != nullptr && *wanted != 0) return wanted;
    if (reach == Reach::local) break;
  }
  return {};
}

ncast_status listening_addresses(Reach reach, const std::string& interfaces, std::vector<InterfaceAddress>* addresses) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return fail(NCAST_SYSTEM_ERROR, "cannot list the network interfaces: %s", system_error_text(errno).c_str());
  }
  const bool only_loopback = reach == Reach::local && interfaces.empty();
  std::multimap<int, InterfaceAddress> found;  // by cost; equal costs in the order of getifaddrs
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    if (entry->ifa_addr->sa_family != AF_INET && entry->ifa_addr->sa_family != AF_INET6) continue;
    if (!interfaces.empty() && !is_named(entry->ifa_name, interfaces)) continue;
    if (only_loopback && (entry->ifa_flags & IFF_LOOPBACK) == 0) continue;
    found.emplace(cost_of(*entry), InterfaceAddress{entry->ifa_name, TcpAddress::from(entry->ifa_addr)});
  }
  freeifaddrs(list);
  if (found.empty()) {
    if (!interfaces.empty())
      return fail(NCAST_SYSTEM_ERROR,
                  "no interface is up that '%s' names (NARROWCAST_SOCKET_IFNAME, NCCL_SOCKET_IFNAME)",
                  interfaces.c_str());
    return fail(NCAST_SYSTEM_ERROR, only_loopback ? "the loopback interface, which local ranks need, is not up"
                                                  : "no network interface is up, not even loopback");
  }
  for (const auto& [cost, address] : found) addresses->push_back(address);
  return NCAST_OK;
}

ncast_status listen(Reach reach, const std::string& interfaces, Descriptor* listener, TcpAddress* address) {
  std::vector<InterfaceAddress> candidates;
  if (ncast_status status = listening_addresses(reach, interfaces, &candidates)) return status;
  std::string why;
  for (const auto& [interface, candidate] : candidates) {
    sockaddr_storage storage;
    socklen_t bytes = candidate.socket_address(&storage);
    auto* const place = reinterpret_cast<sockaddr*>(&storage);
    if (listener->open([&] { return socket(storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }) &&
        bind(listener->get(), place, bytes) == 0 && ::listen(listener->get(), SOMAXCONN) == 0 &&
        getsockname(listener->get(), place, &bytes) == 0) {
      *address = TcpAddress::from(place);
      return NCAST_OK;
    }
    // The address may not be ready yet, or this process may not use it. Try the next one.
    if (why.empty()) why = candidate.text() + ": " + system_error_text(errno);
  }
  return fail(NCAST_SYSTEM_ERROR, "cannot listen at %s", why.c_str());
}

}  // namespace narrowcast::bootstrap
