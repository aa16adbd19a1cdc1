// The hub of a TCP rendezvous: it runs in the process that created the unique id, and every rank connects to it. It
// relays blobs and failures between ranks, and detects ranks that died.
#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/tcp_messages.h"

namespace narrowcast::bootstrap {

// A connection that has not sent a valid hello, or that was rejected.
struct PendingConnection {
  std::unique_ptr<Connection> connection;  // NULL once a hub has admitted it
  Clock::time_point since;
  Challenge challenge;  // that the rank has to answer
  bool rejected = false;
  bool closed = false;
};

// Used by the thread of a HubServer.
class Hub {
 public:
  Hub(const WorldId& secret, Limit unused_limit) : secret_(secret), unused_limit_(unused_limit) {}

  // Makes the hub finished if no rank has joined. Any thread.
  void close_if_unused() { close_requested_ = true; }

  // Whether all ranks have joined and left, or no further rank is expected.
  bool finished() const;
  // How long it can take at most until finished() becomes true without an event; negative: no limit.
  double seconds_left() const;

  // Adds the connections of the ranks, to be polled.
  void add_connections(std::vector<Connection*>* connections) const;
  // Whether a hello proves that its rank knows the secret.
  bool is_proved_by(const Message& hello, const Challenge& challenge) const;
  // Admits a connection that knows the secret, or rejects it. messages: what it has sent; the first is its hello.
  void admit(PendingConnection& pending, std::span<const Message> messages);
  // Handles the events of the connections, and sends.
  void serve_members();
  // Closes the connections of ranks that have left. Call it when all connections have been written: a rank that sees
  // its connection close may end this process.
  void close_ended();

 private:
  // A rank whose hello was accepted.
  struct Member {
    enum State { absent, joined, left, died };
    State state = absent;
    std::unique_ptr<Connection> connection;  // NULL unless the state is `joined`
    std::string name;                        // "rank 2 (pid 77 on node3)"
    bool in_hub_process = false;
    Payload welcome;           // the proof of the hub
    bool contributed = false;  // the hub has its blob of this round
  };

  bool accept(PendingConnection& pending, const Hello& hello, size_t hello_bytes);
  bool reject(PendingConnection& pending, const std::string& message);
  void serve_member(int rank);
  void handle_messages(int rank, std::span<const Message> messages);
  void handle(int rank, const Message& message);
  void remove_member(int rank, bool orderly, int error);
  void receive_blob(int rank, const std::vector<char>& blob);
  void relay(int from, int to, const std::vector<char>& blob);
  void advance_round();
  void end_round();
  void handle_timeout(int rank, double seconds);
  std::string ranks_where(bool (*includes)(const Member&)) const;

  void fail_group(ncast_status status, int32_t rank, const std::string& message);
  void send_to_all(MessageKind kind, int32_t value, const Payload& payload);
  int32_t rank_in_hub_process() const;
  Member& member(int rank) { return members_[static_cast<size_t>(rank)]; }

  const WorldId secret_;
  const Limit unused_limit_;
  const Clock::time_point opened_ = Clock::now();
  std::atomic<bool> close_requested_ = false;
  std::vector<Member> members_;  // empty until the first hello, which contains the number of ranks
  int joined_ranks_ = 0;
  bool complete_ = false;
  Payload failure_;  // the first failure
  Clock::time_point failed_at_;
  // The current round of all_gather.
  std::vector<char> round_;                   // the blobs of all ranks
  size_t blob_bytes_ = 0;                     // bytes from each rank
  int first_contributor_ = -1;                // -1: no round has begun
  std::set<std::pair<int, int>> unanswered_;  // blobs of one rank for another, by sender and receiver
};

}  // namespace narrowcast::bootstrap
