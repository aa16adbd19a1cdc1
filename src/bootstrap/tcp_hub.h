// The hub of a TCP rendezvous: a thread in the process that created the unique id. Every rank connects to it. The hub
// admits connections that know the secret, relays blobs and failures between ranks, and detects ranks that died.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/tcp_address.h"
#include "bootstrap/tcp_messages.h"

namespace narrowcast::bootstrap {

// Starts a hub. It is listening when this returns. It ends when all ranks have joined and left, or, if no rank joins,
// `unused_limit` after it was opened. It does not keep the process from exiting. Errors: SYSTEM_ERROR. Any thread.
ncast_status open_rendezvous(const WorldId& secret, Limit unused_limit, TcpAddress* address);

// Tells the hub of this secret, if this process runs it, that no rank will join. The hub then ends soon, unless a rank
// has already joined. Any thread.
void close_unused_rendezvous(const WorldId& secret);

// Whether the hub of this secret runs in this process. False in a forked child of that process. Any thread.
bool is_hub_running(const WorldId& secret);

class Hub {
 public:
  Hub(const WorldId& secret, Limit unused_limit) : secret_(secret), unused_limit_(unused_limit) {}

  ncast_status listen(TcpAddress* address);
  // The body of its thread.
  void run();
  // Ends the hub if no rank has joined. Any thread, after listen().
  void close_if_unused();

 private:
  // A rank whose hello was accepted.
  struct Member {
    enum State { absent, joined, left, died };
    State state = absent;
    std::unique_ptr<Connection> connection;  // NULL unless the state is `joined`
    std::string name;                        // "rank 2 (pid 77 on node3)"
    bool in_hub_process = false;
    bool contributed = false;  // the hub has its blob of this round
  };
  // A connection that has not sent a valid hello, or that was rejected.
  struct PendingConnection {
    std::unique_ptr<Connection> connection;
    Clock::time_point since;
    bool rejected = false;
    bool closed = false;
  };

  bool finished() const;
  void wait_for_events();
  void accept_connections();
  void serve_pending(PendingConnection& pending);
  void admit(PendingConnection& pending, const Hello& hello, size_t hello_bytes);
  void reject(PendingConnection& pending, const std::string& message);
  void serve_member(int rank);
  void handle_messages(int rank, std::span<const Message> messages);
  void handle(int rank, const Message& message);
  void remove_member(int rank, bool orderly, int error);
  void receive_blob(int rank, const std::vector<char>& blob);
  void advance_round();
  void end_round();
  void handle_timeout(int rank, double seconds);
  std::string ranks_where(bool (*includes)(const Member&)) const;

  void fail_group(ncast_status status, int32_t rank, const std::string& message);
  void send_to_all(MessageKind kind, int32_t value, const Payload& payload);
  void write_all();
  int32_t rank_in_hub_process() const;
  Member& member(int rank) { return members_[static_cast<size_t>(rank)]; }

  const WorldId secret_;
  const Limit unused_limit_;
  const Clock::time_point opened_ = Clock::now();
  std::atomic<bool> close_requested_ = false;
  Descriptor wake_;  // an eventfd
  Descriptor listener_;
  bool cannot_accept_ = false;  // out of descriptors for now
  bool listener_has_events_ = false;
  std::vector<PendingConnection> pending_;
  std::vector<Member> members_;  // empty until the first hello, which contains the number of ranks
  int joined_ranks_ = 0;
  bool complete_ = false;
  Payload failure_;  // the first failure
  Clock::time_point failed_at_;
  // The current round of all_gather.
  std::vector<char> round_;     // the blobs of all ranks
  size_t blob_bytes_ = 0;       // bytes from each rank
  int first_contributor_ = -1;  // -1: no round has begun
};

}  // namespace narrowcast::bootstrap
