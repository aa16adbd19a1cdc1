#include "bootstrap/tcp_hub_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <thread>
#include <utility>

#include "bootstrap/background_thread.h"
#include "bootstrap/shared_memory.h"
#include "status/error.h"
#include "status/system_error.h"

namespace narrowcast::bootstrap {
namespace {

constexpr size_t max_pending = 256;
constexpr int max_accepts_per_turn = 64;  // below max_pending, so that each is read before newer ones can evict it
constexpr Limit hello_limit = {20};       // for a new connection to send its hello; generous for loaded machines
constexpr int pending_milliseconds = 200;
constexpr int longest_milliseconds = 3'600'000;

struct RunningHub {
  WorldId secret;
  Hub* hub;  // NULL when it is about to end
  HubServer* server;
};

// The hubs and servers of this process. Guarded by block_forks().
struct Running {
  pid_t pid;
  std::vector<RunningHub> hubs;
  std::vector<HubServer*> servers;  // that accept further hubs
  const Running* of_parent;         // in a forked child: kept, and not used

  // Never destroyed: hubs may outlive static objects. A forked child, which does not have the threads of its parent,
  // starts without any.
  static Running& get() {
    static Running* running = nullptr;
    if (running == nullptr || running->pid != getpid()) running = new Running{getpid(), {}, {}, running};
    return *running;
  }
};

void remove_ended(const HubServer* server) {
  const auto fork_lock = block_forks();
  std::erase_if(Running::get().hubs,
                [&](const RunningHub& running) { return running.hub == nullptr && running.server == server; });
}

// Ends when the server has no hubs.
void serve(HubServer& server) {
  for (;;) {
    std::vector<std::unique_ptr<Hub>> ended;
    {
      const auto fork_lock = block_forks();
      ended = server.update_hubs();
      for (RunningHub& running : Running::get().hubs)
        if (std::ranges::find(ended, running.hub, &std::unique_ptr<Hub>::get) != ended.end()) running.hub = nullptr;
      if (!server.has_hubs()) {
        std::erase(Running::get().servers, &server);
        return;
      }
    }
    if (!ended.empty()) remove_ended(&server);
    ended.clear();
    server.turn();
  }
}

void run_server(std::unique_ptr<HubServer> server) {
  // After an exception (out of memory) the hubs end, and the ranks see their connections close.
  guarded("rendezvous", [&] {
    serve(*server);
    return NCAST_OK;
  });
  {
    const auto fork_lock = block_forks();
    std::erase(Running::get().servers, server.get());
    for (RunningHub& running : Running::get().hubs)
      if (running.server == server.get()) running.hub = nullptr;
  }
  const HubServer* const ended = server.get();
  server.reset();
  remove_ended(ended);
}

}  // namespace

ncast_status open_rendezvous(const WorldId& secret, Limit unused_limit, Reach reach, TcpAddress* address) {
  auto hub = std::make_unique<Hub>(secret, unused_limit);
  RunningHub entry = {secret, hub.get(), nullptr};
  const std::string interfaces = wanted_interfaces(reach);
  {
    const auto fork_lock = block_forks();
    Running& running = Running::get();
    for (HubServer* const server : running.servers) {
      if (!server->listens_for(reach, interfaces)) continue;
      running.hubs.reserve(running.hubs.size() + 1);
      server->add(std::move(hub));
      entry.server = server;
      running.hubs.push_back(entry);
      server->wake();
      *address = server->address();
      return NCAST_OK;
    }
  }
  // If another thread starts such a server at the same time, both serve their hubs.
  auto server = std::make_unique<HubServer>(reach, interfaces);
  if (ncast_status status = server->listen()) return status;
  server->add(std::move(hub));
  *address = server->address();
  entry.server = server.get();
  std::thread thread;
  const auto body = [made = server.get()] { run_server(std::unique_ptr<HubServer>(made)); };
  const auto fork_lock = block_forks();  // the thread waits for it, so it does not end before its hub is registered
  Running& running = Running::get();
  running.servers.reserve(running.servers.size() + 1);
  running.hubs.reserve(running.hubs.size() + 1);
  if (ncast_status status = start_background_thread("narrowcast-hub", body, &thread)) return status;
  thread.detach();
  running.servers.push_back(server.release());
  running.hubs.push_back(entry);
  return NCAST_OK;
}

void close_unused_rendezvous(const WorldId& secret) {
  const auto fork_lock = block_forks();
  for (const RunningHub& running : Running::get().hubs) {
    if (running.secret != secret || running.hub == nullptr) continue;
    running.hub->close_if_unused();
    running.server->wake();
  }
}

bool is_hub_running(const WorldId& secret) {
  const auto fork_lock = block_forks();
  return std::ranges::find(Running::get().hubs, secret, &RunningHub::secret) != Running::get().hubs.end();
}

ncast_status HubServer::listen() {
  if (!wake_.open([] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })) {
    return fail(NCAST_SYSTEM_ERROR, "cannot make an eventfd: %s", system_error_text(errno).c_str());
  }
  return bootstrap::listen(reach_, interfaces_, &listener_, &address_);
}

void HubServer::wake() {
  const uint64_t one = 1;
  static_cast<void>(write(wake_.get(), &one, sizeof one));
}

std::vector<std::unique_ptr<Hub>> HubServer::update_hubs() {
  std::ranges::move(new_hubs_, std::back_inserter(hubs_));
  new_hubs_.clear();
  std::vector<std::unique_ptr<Hub>> ended;
  for (std::unique_ptr<Hub>& hub : hubs_)
    if (hub->finished()) ended.push_back(std::move(hub));
  std::erase(hubs_, nullptr);
  return ended;
}

void HubServer::turn() {
  wait_for_events();
  if (listener_has_events_) accept_connections();
  for (PendingConnection& pending : pending_) serve_pending(pending);
  for (const std::unique_ptr<Hub>& hub : hubs_) hub->serve_members();
  for (PendingConnection& pending : pending_)
    if (pending.connection != nullptr) static_cast<void>(pending.connection->write_some());
  for (const std::unique_ptr<Hub>& hub : hubs_) hub->close_ended();
  std::erase_if(pending_, [](const PendingConnection& pending) {
    return pending.closed || pending.connection == nullptr || hello_limit.passed(pending.since);
  });
}

// -1: no limit.
int HubServer::poll_milliseconds() const {
  if (cannot_accept_ || !pending_.empty()) return pending_milliseconds;
  double seconds = -1;
  for (const std::unique_ptr<Hub>& hub : hubs_)
    if (const double left = hub->seconds_left(); left >= 0 && (seconds < 0 || left < seconds)) seconds = left;
  return seconds < 0 ? -1 : static_cast<int>(std::min(seconds * 1000 + 1, double{longest_milliseconds}));
}

void HubServer::wait_for_events() {
  std::vector<pollfd> events = {{cannot_accept_ ? -1 : listener_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
  std::vector<Connection*> connections;
  connections.reserve(pending_.size());
  for (const PendingConnection& pending : pending_) connections.push_back(pending.connection.get());
  for (const std::unique_ptr<Hub>& hub : hubs_) hub->add_connections(&connections);
  const size_t own_events = events.size();
  events.reserve(own_events + connections.size());
  for (const Connection* connection : connections) events.push_back(connection->wanted_events());
  poll(events.data(), events.size(), poll_milliseconds());
  for (size_t i = 0; i < connections.size(); ++i) connections[i]->has_events = events[i + own_events].revents != 0;
  uint64_t wakes = 0;
  if (events[1].revents != 0) static_cast<void>(read(wake_.get(), &wakes, sizeof wakes));
  listener_has_events_ = cannot_accept_ || events[0].revents != 0;
  cannot_accept_ = false;
}

void HubServer::accept_connections() {
  for (int i = 0; i < max_accepts_per_turn; ++i) {
    auto connection = std::make_unique<Connection>();
    if (!connection->socket.open(
            [this] { return accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); })) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      cannot_accept_ = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (!cannot_accept_) continue;  // an error of the incoming connection, not of the listener
      if (!pending_.empty()) pending_.erase(pending_.begin());
      return;
    }
    set_up_socket(connection->socket.get());
    connection->allow_payload(largest_short_message);
    HubChallenge challenge = {};
    std::copy(std::begin(hello_magic), std::end(hello_magic), challenge.magic);
    if (random_bytes(&challenge.challenge, sizeof challenge.challenge) != NCAST_OK) continue;
    connection->queue(MessageKind::challenge, 0, to_payload(challenge));
    static_cast<void>(connection->write_some());  // reading reports errors
    // Evict the oldest pending connection. It is unlikely to be a rank, because ranks send their hello at once.
    if (pending_.size() == max_pending) pending_.erase(pending_.begin());
    pending_.push_back({std::move(connection), Clock::now(), challenge.challenge});
  }
}

void HubServer::serve_pending(PendingConnection& pending) {
  if (!pending.connection->has_events) return;
  std::vector<Message> messages;
  pending.closed = !pending.connection->read_some(&messages);
  if (messages.empty()) return;
  if (pending.rejected) {
    pending.closed = true;  // the peer has read the rejection and says goodbye
    return;
  }
  const Message& message = messages.front();
  const auto hello = from_payload<Hello>(message.payload);
  const bool is_hello = message.header.kind == MessageKind::hello && message.payload.size() >= hello_stable_bytes &&
                        std::equal(std::begin(hello_magic), std::end(hello_magic), hello.magic);
  const auto knows = [&](const std::unique_ptr<Hub>& hub) {
    return is_hello && hub->is_proved_by(message, pending.challenge);
  };
  const auto known = std::ranges::find_if(hubs_, knows);
  if (known == hubs_.end()) {
    pending.closed = true;
    return;
  }
  (*known)->admit(pending, messages);
}

}  // namespace narrowcast::bootstrap
