// How a hub comes to be: its socket, its thread, and which hubs run in this process.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "channel/quiet_thread.h"
#include "channel/tcp_hub.h"
#include "status/error.h"

namespace narrowcast::channel {
namespace {

struct RunningHub {
  WorldId secret;
  pid_t pid;  // a forked child has the entry too, but not the thread
  bool operator==(const RunningHub&) const = default;
};

// Under hold_off_forks(). Never destroyed: hubs may outlive the static objects.
std::vector<RunningHub>& running_hubs() {
  static auto* const hubs = new std::vector<RunningHub>;
  return *hubs;
}

void run_hub(std::unique_ptr<Hub> hub, const RunningHub& entry) {
  // An exception (out of memory) ends it, and the ranks see their connections end.
  guarded("rendezvous", [&] {
    hub->run();
    return NCAST_OK;
  });
  hub.reset();
  const auto no_fork = hold_off_forks();
  std::erase(running_hubs(), entry);
}

}  // namespace

bool is_hub_here(const WorldId& secret) {
  const auto no_fork = hold_off_forks();
  const auto& hubs = running_hubs();
  return std::find(hubs.begin(), hubs.end(), RunningHub{secret, getpid()}) != hubs.end();
}

ncast_status Hub::listen(TcpAddress* result) {
  std::vector<TcpAddress> candidates;
  if (ncast_status status = listening_addresses(&candidates)) return status;
  std::string why;
  for (const TcpAddress& candidate : candidates) {
    sockaddr_storage address;
    socklen_t bytes = candidate.socket_address(&address);
    const bool listens =
        listener_.open([&] { return socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }) &&
        bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), bytes) == 0 &&
        ::listen(listener_.get(), SOMAXCONN) == 0 &&
        getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &bytes) == 0;
    if (listens) {
      *result = TcpAddress::from(reinterpret_cast<sockaddr*>(&address));
      return NCAST_OK;
    }
    // An address that is not ready yet, or none that this process may use. The next one may do.
    if (why.empty()) why = candidate.text() + ": " + std::strerror(errno);
  }
  return fail(NCAST_SYSTEM_ERROR, "cannot listen at %s", why.c_str());
}

ncast_status open_rendezvous(const WorldId& secret, Limit unused, TcpAddress* address) {
  auto hub = std::make_unique<Hub>(secret, unused);
  if (ncast_status status = hub->listen(address)) return status;
  const RunningHub entry = {secret, getpid()};
  {
    const auto no_fork = hold_off_forks();
    running_hubs().push_back(entry);
  }
  std::thread thread;
  auto body = [hub = std::move(hub), entry]() mutable { run_hub(std::move(hub), entry); };
  if (ncast_status status = start_quiet_thread("narrowcast-hub", std::move(body), &thread)) {
    const auto no_fork = hold_off_forks();
    std::erase(running_hubs(), entry);
    return status;
  }
  thread.detach();
  return NCAST_OK;
}

}  // namespace narrowcast::channel
