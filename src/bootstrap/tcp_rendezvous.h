// A rendezvous over TCP. The ranks may be threads, or processes in different containers and on different hosts.
#pragma once

#include <memory>

#include "bootstrap/rendezvous.h"
#include "bootstrap/tcp_address.h"
#include "bootstrap/world_id.h"

namespace narrowcast::bootstrap {

class TcpWatcher;

// A rank's side: a connection to the hub (tcp_hub.h) and a thread that watches it. The death of a peer process is
// reported at once, because the kernel closes its connection; the loss of a host, after half a minute. A forked child
// may only destroy its copy.
class TcpRendezvous final : public Rendezvous {
 public:
  // Returns when all ranks have joined the hub at `address`. `limit` applies to joining and, until set_limit() is
  // called, to each all_gather. Errors: TIMEOUT (names the missing ranks; also if another rank timed out first);
  // MISMATCH (the ranks disagree on `ranks`, two have the same rank, or their library versions differ); REMOTE_ERROR (a
  // rank died, or the hub's process ended); SYSTEM_ERROR; INVALID_ARGUMENT.
  static ncast_status join(const TcpAddress& address, const WorldId& secret, int rank, int ranks, Limit limit,
                           std::unique_ptr<Rendezvous>* result);
  ~TcpRendezvous() override;

  ncast_status all_gather(const void* mine, size_t bytes, void* all) override;
  ncast_status exchange_with(int peer, const void* mine, size_t bytes, void* theirs) override;
  void set_limit(Limit limit) override;
  void publish_failure(ncast_status status, const char* message) override;
  ncast_status check_failure() const override;
  void on_failure(std::function<void(ncast_status, const char*)> handler) override;

 private:
  TcpRendezvous(int rank, int ranks, std::unique_ptr<TcpWatcher> watcher);

  std::unique_ptr<TcpWatcher> watcher_;
};

}  // namespace narrowcast::bootstrap
