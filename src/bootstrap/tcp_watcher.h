// A rank's connection to the hub, and the thread that serves it.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/tcp_address.h"
#include "bootstrap/tcp_messages.h"

namespace narrowcast::bootstrap {

class TcpWatcher {
 public:
  using Handler = std::function<void(ncast_status, const char*)>;

  TcpWatcher(const TcpAddress& hub, int rank, int ranks, Limit limit);
  TcpWatcher(const TcpWatcher&) = delete;
  TcpWatcher& operator=(const TcpWatcher&) = delete;
  // Sends a goodbye and waits at most one second for the hub to close the connection.
  ~TcpWatcher();

  // Call once, before the functions below. Returns when all ranks have joined.
  ncast_status join(const WorldId& secret);
  // Like the functions of Rendezvous (exchange: all_gather). Any thread; one exchange() at a time.
  ncast_status exchange(const void* mine, size_t bytes, void* all);
  ncast_status exchange_with(int peer, const void* mine, size_t bytes, void* theirs);
  void set_limit(Limit limit);
  void publish_failure(ncast_status status, const char* message);
  ncast_status check_failure() const;
  void set_handler(Handler handler);

  // True in a forked child of the process that joined: it has no copy of the thread.
  bool forked() const;

 private:
  struct Outgoing {
    MessageKind kind;
    int32_t value;
    Payload payload;
  };
  struct Pair {
    std::deque<std::vector<char>> received;  // not returned yet
    bool has_left = false;
  };

  ncast_status connect(Clock::time_point start);
  void run();
  bool serve();
  bool receive(Message& message);
  bool answer_challenge(const Message& message);
  void connection_ended(int error);
  void call_handler();
  std::string hub_name() const;
  // The caller of these, and of wait(), holds mutex_.
  void record_failure(const FailureMessage& failure);
  void publish_locked(ncast_status status, const char* message);
  void send(MessageKind kind, Payload payload, int32_t value = 0);
  void wake();
  ncast_status check_failure_locked() const;
  template <typename Done>
  bool wait(std::unique_lock<std::mutex>& lock, Limit limit, Done done, bool* stopped);
  template <typename Done>
  ncast_status wait_or_time_out(std::unique_lock<std::mutex>& lock, Clock::time_point start, Done done);

  const TcpAddress hub_;
  const int rank_;
  const int ranks_;
  const pid_t pid_;
  WorldId secret_ = {};
  Connection connection_;  // used by the thread only, once it runs
  Descriptor wake_;        // an eventfd
  std::thread thread_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Limit limit_;  // for joining and for each exchange
  std::vector<Outgoing> outbox_;
  bool answered_ = false;  // the challenge of the hub
  Proof expected_proof_ = {};
  bool welcomed_ = false;
  bool leaving_ = false;
  bool goodbye_queued_ = false;
  Clock::time_point leaving_since_;
  bool ended_ = false;  // the connection is closed
  bool hub_may_end_ = false;
  int rank_in_hub_process_ = -1;
  bool exchanging_ = false;
  bool exchanged_ = false;  // the hub has answered the current exchange
  size_t expected_bytes_ = 0;
  std::vector<char> gathered_;
  FailureMessage refusal_ = {};      // the error of the current exchange, if any
  std::map<int, Pair> pairs_;        // by peer
  ncast_status failure_ = NCAST_OK;  // the first failure; it and its message do not change again
  bool failure_is_mine_ = false;
  char failure_message_[Rendezvous::failure_message_bytes + 40] = "";
  bool handler_called_ = false;
  bool handler_runs_ = false;
  Handler handler_;
};

}  // namespace narrowcast::bootstrap
