// The meeting point of a rendezvous: a thread in the process that made the unique id. It admits those who know the
// secret, relays their blobs and failures, and notices who died.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/tcp_address.h"
#include "bootstrap/tcp_messages.h"

namespace narrowcast::bootstrap {

// Starts a hub, which listens when this returns. It ends when all ranks have joined and left; or, when no rank at all
// came, `unused` after it was opened; it does not keep the process from ending. Errors: SYSTEM_ERROR. Any thread.
ncast_status open_rendezvous(const WorldId& secret, Limit unused, TcpAddress* address);

// Soon ends the hub of this secret, if it runs in this process and no rank has come to it: none will. Any thread.
void close_unused_rendezvous(const WorldId& secret);

// The hub of this secret runs in this process, not only in one that forked it. Any thread.
bool is_hub_here(const WorldId& secret);

class Hub {
 public:
  Hub(const WorldId& secret, Limit unused) : secret_(secret), unused_(unused) {}

  ncast_status listen(TcpAddress* address);
  // The body of its thread.
  void run();
  // No rank will come, unless one has already. Any thread, from listen() on.
  void expect_none();

 private:
  // A rank, from when its hello was accepted.
  struct Member {
    enum State { absent, here, left, died };
    State state = absent;
    std::unique_ptr<Connection> connection;  // while here
    std::string name;                        // "rank 2 (pid 77 on node3)"
    bool beside_hub = false;
    bool gave = false;  // its blob of this round
  };
  // A connection that has not said a valid hello, or was turned away.
  struct Stranger {
    std::unique_ptr<Connection> connection;
    Clock::time_point since;
    bool turned_away = false;
    bool gone = false;
  };

  bool finished() const;
  void wait_for_events();
  void accept_strangers();
  void hear_stranger(Stranger& stranger);
  void admit(Stranger& stranger, const Hello& hello, size_t hello_bytes);
  void turn_away(Stranger& stranger, const std::string& sentence);
  void hear_member(int rank);
  void handle_all(int rank, std::span<const Message> messages);
  void handle(int rank, const Message& message);
  void part_with(int rank, bool orderly, int error);
  void take_blob(int rank, const std::vector<char>& blob);
  void settle_round();
  void end_round();
  void give_up(int rank, double seconds);
  std::string list_of(bool (*includes)(const Member&)) const;

  void fail_group(ncast_status status, int32_t rank, const std::string& sentence);
  void tell_all(MessageKind kind, int32_t value, const Payload& payload);
  void write_all();
  int32_t rank_beside_hub() const;
  Member& member(int rank) { return members_[static_cast<size_t>(rank)]; }

  const WorldId secret_;
  const Limit unused_;
  const Clock::time_point opened_ = Clock::now();
  std::atomic<bool> expects_none_ = false;
  Descriptor wake_;  // an eventfd
  Descriptor listener_;
  bool cannot_accept_ = false;  // no more descriptors for now
  bool has_events_ = false;     // of the listener
  std::vector<Stranger> strangers_;
  std::vector<Member> members_;  // none until the first rank has said how many there are
  int joined_ = 0;
  bool complete_ = false;
  Payload failure_;  // the first
  Clock::time_point failed_at_;
  std::vector<char> round_;  // the blobs of all ranks
  size_t blob_bytes_ = 0;    // of one rank in this round
  int first_giver_ = -1;     // of this round
};

}  // namespace narrowcast::bootstrap
