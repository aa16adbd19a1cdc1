// How a hub comes to be: its socket, its thread, and which hubs run in this process.
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "bootstrap/background_thread.h"
#include "bootstrap/tcp_hub.h"
#include "status/error.h"

namespace narrowcast::bootstrap {
namespace {

struct RunningHub {
  WorldId secret;
  pid_t pid;  // a forked child has the entry too, but not the thread
  Hub* hub;   // NULL when it is about to end
  bool is(const WorldId& other) const { return secret == other && pid == getpid(); }
};

// Under hold_off_forks(). Never destroyed: hubs may outlive the static objects.
std::vector<RunningHub>& running_hubs() {
  static auto* const hubs = new std::vector<RunningHub>;
  return *hubs;
}

// Under hold_off_forks().
void forget_hub(const WorldId& secret) {
  std::erase_if(running_hubs(), [&](const RunningHub& running) { return running.is(secret); });
}

void run_hub(std::unique_ptr<Hub> hub, const WorldId& secret) {
  // An exception (out of memory) ends it, and the ranks see their connections end.
  guarded("rendezvous", [&] {
    hub->run();
    return NCAST_OK;
  });
  {
    const auto no_fork = hold_off_forks();
    for (RunningHub& running : running_hubs())
      if (running.is(secret)) running.hub = nullptr;
  }
  hub.reset();
  const auto no_fork = hold_off_forks();
  forget_hub(secret);
}

}  // namespace

void close_unused_rendezvous(const WorldId& secret) {
  const auto no_fork = hold_off_forks();
  for (const RunningHub& running : running_hubs())
    if (running.is(secret) && running.hub != nullptr) running.hub->expect_none();
}

bool is_hub_here(const WorldId& secret) {
  const auto no_fork = hold_off_forks();
  return std::ranges::any_of(running_hubs(), [&](const RunningHub& running) { return running.is(secret); });
}

ncast_status Hub::listen(TcpAddress* result) {
  if (!wake_.open([] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })) {
    return fail(NCAST_SYSTEM_ERROR, "cannot make an eventfd: %s", std::strerror(errno));
  }
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
  {
    const auto no_fork = hold_off_forks();
    running_hubs().push_back({secret, getpid(), hub.get()});
  }
  std::thread thread;
  auto body = [hub = std::move(hub), secret]() mutable { run_hub(std::move(hub), secret); };
  if (ncast_status status = start_quiet_thread("narrowcast-hub", std::move(body), &thread)) {
    const auto no_fork = hold_off_forks();
    forget_hub(secret);
    return status;
  }
  thread.detach();
  return NCAST_OK;
}

}  // namespace narrowcast::bootstrap
