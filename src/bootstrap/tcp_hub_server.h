// The listener and the thread that all hubs of a process share.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/tcp_address.h"
#include "bootstrap/tcp_hub.h"

namespace narrowcast::bootstrap {

// Starts a hub. It is listening when this returns. It ends when all ranks have joined and left, or, if no rank joins,
// `unused_limit` after it was opened. It does not keep the process from exiting, and hubs that no rank has joined yet
// need only memory. Errors: SYSTEM_ERROR. Any thread.
ncast_status open_rendezvous(const WorldId& secret, Limit unused_limit, Reach reach, TcpAddress* address);

// Tells the hub of this secret, if this process runs it, that no rank will join. The hub then ends soon, unless a rank
// has already joined. Any thread.
void close_unused_rendezvous(const WorldId& secret);

// Whether the hub of this secret runs in this process. False in a forked child of that process. Any thread.
bool is_hub_running(const WorldId& secret);

// Accepts connections and hands each to the hub whose secret it knows.
class HubServer {
 public:
  // The addresses that it listens at depend on both.
  HubServer(Reach reach, std::string interfaces) : reach_(reach), interfaces_(std::move(interfaces)) {}

  ncast_status listen();
  const TcpAddress& address() const { return address_; }
  bool listens_for(Reach reach, const std::string& interfaces) const {
    return reach_ == reach && interfaces_ == interfaces;
  }

  // Any thread that holds block_forks(). The server serves it from the next turn on.
  void add(std::unique_ptr<Hub> hub) { new_hubs_.push_back(std::move(hub)); }
  // Ends the wait for events. Any thread.
  void wake();

  // For its thread: waits for events and handles them.
  void turn();
  // For its thread, which holds block_forks(): takes the hubs that were added since the last turn, and returns those
  // that are finished.
  std::vector<std::unique_ptr<Hub>> update_hubs();
  bool has_hubs() const { return !hubs_.empty(); }

 private:
  void wait_for_events();
  int poll_milliseconds() const;
  void accept_connections();
  void serve_pending(PendingConnection& pending);

  const Reach reach_;
  const std::string interfaces_;
  TcpAddress address_ = {};
  Descriptor wake_;  // an eventfd
  Descriptor listener_;
  bool cannot_accept_ = false;  // out of descriptors for now
  bool listener_has_events_ = false;
  std::vector<PendingConnection> pending_;
  std::vector<std::unique_ptr<Hub>> hubs_;
  std::vector<std::unique_ptr<Hub>> new_hubs_;  // guarded by block_forks()
};

}  // namespace narrowcast::bootstrap
