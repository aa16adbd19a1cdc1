// Starts hubs: the socket, the thread, and the list of the hubs that run in this process.
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
  pid_t pid;  // a forked child inherits the entry but not the thread
  Hub* hub;   // NULL when the hub is about to end
  bool is(const WorldId& other) const { return secret == other && pid == getpid(); }
};

// Guarded by block_forks(). Never destroyed: hubs may outlive static objects.
std::vector<RunningHub>& running_hubs() {
  static auto* const hubs = new std::vector<RunningHub>;
  return *hubs;
}

// The caller holds block_forks().
void forget_hub(const WorldId& secret) {
  std::erase_if(running_hubs(), [&](const RunningHub& running) { return running.is(secret); });
}

void run_hub(std::unique_ptr<Hub> hub, const WorldId& secret) {
  // After an exception (out of memory) the hub ends, and the ranks see their connections close.
  guarded("rendezvous", [&] {
    hub->run();
    return NCAST_OK;
  });
  {
    const auto fork_lock = block_forks();
    for (RunningHub& running : running_hubs())
      if (running.is(secret)) running.hub = nullptr;
  }
  hub.reset();
  const auto fork_lock = block_forks();
  forget_hub(secret);
}

}  // namespace

void close_unused_rendezvous(const WorldId& secret) {
  const auto fork_lock = block_forks();
  for (const RunningHub& running : running_hubs())
    if (running.is(secret) && running.hub != nullptr) running.hub->close_if_unused();
}

bool is_hub_running(const WorldId& secret) {
  const auto fork_lock = block_forks();
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
    // The address may not be ready yet, or this process may not use it. Try the next one.
    if (why.empty()) why = candidate.text() + ": " + std::strerror(errno);
  }
  return fail(NCAST_SYSTEM_ERROR, "cannot listen at %s", why.c_str());
}

ncast_status open_rendezvous(const WorldId& secret, Limit unused, TcpAddress* address) {
  auto hub = std::make_unique<Hub>(secret, unused);
  if (ncast_status status = hub->listen(address)) return status;
  {
    const auto fork_lock = block_forks();
    running_hubs().push_back({secret, getpid(), hub.get()});
  }
  std::thread thread;
  auto body = [hub = std::move(hub), secret]() mutable { run_hub(std::move(hub), secret); };
  if (ncast_status status = start_background_thread("narrowcast-hub", std::move(body), &thread)) {
    const auto fork_lock = block_forks();
    forget_hub(secret);
    return status;
  }
  thread.detach();
  return NCAST_OK;
}

}  // namespace narrowcast::bootstrap
