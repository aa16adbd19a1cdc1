// A rendezvous over TCP: the ranks may be threads, processes, in different containers, on different hosts.
#pragma once

#include <memory>

#include "bootstrap/rendezvous.h"
#include "bootstrap/tcp_hub.h"

namespace narrowcast::bootstrap {

class TcpWatcher;

// A rank's end: a connection to the hub (tcp_hub.h), and a thread that watches it, so that a peer's death is known at
// once where the kernel closes its connection, and after half a minute when its host is lost. A fork leaves it with the
// parent: the child may only destroy its copy.
class TcpRendezvous final : public Rendezvous {
 public:
  // Returns when all ranks have joined the hub at `address`. `limit` is that of joining, and of each all_gather until
  // set_limit() says otherwise. Errors: TIMEOUT names the ranks that are missing; MISMATCH: the ranks disagree on
  // `ranks`, two have the same rank, or versions of the library differ; REMOTE_ERROR: a rank died or gave up, or the
  // hub's process ended; SYSTEM_ERROR; INVALID_ARGUMENT.
  static ncast_status join(const TcpAddress& address, const WorldId& secret, int rank, int ranks, Limit limit,
                           std::unique_ptr<Rendezvous>* result);
  ~TcpRendezvous() override;

  ncast_status all_gather(const void* mine, size_t bytes, void* all) override;
  void set_limit(Limit limit) override;
  void publish_failure(ncast_status status, const char* sentence) override;
  ncast_status check_failure() const override;
  void on_failure(std::function<void(ncast_status, const char*)> handler) override;

 private:
  TcpRendezvous(int rank, int ranks, std::unique_ptr<TcpWatcher> watcher);

  std::unique_ptr<TcpWatcher> watcher_;
};

}  // namespace narrowcast::bootstrap
