// A rank's connection to the hub of its rendezvous, and the thread that serves it.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <functional>
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
  // Says goodbye, and waits for the hub to hear it, a second at most.
  ~TcpWatcher();

  // Once, first. Until all ranks are there.
  ncast_status join(const WorldId& secret);
  // Any thread, after join(); exchange() one at a time. As the functions of Rendezvous.
  ncast_status exchange(const void* mine, size_t bytes, void* all);
  void set_limit(Limit limit);
  void publish_failure(ncast_status status, const char* sentence);
  ncast_status check_failure() const;
  void set_handler(Handler handler);

  // In a child that was forked from the process that joined: there is no thread.
  bool forked() const;

 private:
  ncast_status connect(Clock::time_point start);
  void run();
  bool serve();
  bool receive(Message& message);
  void connection_ended(int error);
  void call_handler();
  std::string hub_name() const;
  // These, and wait(), with mutex_ held.
  void learn(const FailureMessage& news);
  void publish_locked(ncast_status status, const char* sentence);
  void send(MessageKind kind, Payload payload);
  void wake();
  ncast_status check_failure_locked() const;
  template <typename Done>
  bool wait(std::unique_lock<std::mutex>& lock, Limit limit, Done done);
  template <typename Done>
  ncast_status wait_or_give_up(std::unique_lock<std::mutex>& lock, Clock::time_point start, Done done);

  const TcpAddress hub_;
  const int rank_;
  const int ranks_;
  const pid_t pid_;
  Connection connection_;  // the thread's, once it runs
  Descriptor wake_;        // an eventfd
  std::thread thread_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Limit limit_;  // of joining, and of exchanges that begin
  std::vector<std::pair<MessageKind, Payload>> outbox_;
  bool welcomed_ = false;
  bool leaving_ = false;
  bool said_goodbye_ = false;
  Clock::time_point leaving_since_;
  bool ended_ = false;  // the connection
  bool hub_may_end_ = false;
  int rank_beside_hub_ = -1;
  bool exchanging_ = false;
  bool exchanged_ = false;  // the hub has answered
  size_t expected_bytes_ = 0;
  std::vector<char> gathered_;
  FailureMessage refusal_ = {};      // of the exchange
  ncast_status failure_ = NCAST_OK;  // the first; unchanged from then on, with its sentence
  bool failure_is_mine_ = false;
  char failure_sentence_[Rendezvous::sentence_bytes + 40] = "";
  bool handler_called_ = false;
  Handler handler_;
};

}  // namespace narrowcast::bootstrap
