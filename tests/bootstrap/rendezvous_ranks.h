// Ranks that meet at a hub, for the tests of the rendezvous.
#pragma once

#include <sys/mman.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "bootstrap/shared_memory.h"
#include "bootstrap/tcp_rendezvous.h"
#include "support/ranks.h"

namespace narrowcast::testing {

using bootstrap::Clock;
using bootstrap::Rendezvous;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

inline bool sentence_has(const std::string& part) {
  return std::string(ncast_last_error()).find(part) != std::string::npos;
}

// What a unique id says.
struct Meeting {
  bootstrap::TcpAddress address;
  bootstrap::WorldId secret;

  static Meeting open() {
    Meeting meeting;
    EXPECT_OK(bootstrap::random_bytes(&meeting.secret, sizeof meeting.secret));
    EXPECT_OK(bootstrap::open_rendezvous(meeting.secret, {0}, &meeting.address));
    return meeting;
  }

  ncast_status join(int rank, int ranks, std::unique_ptr<Rendezvous>* result, double seconds = 40) const {
    return bootstrap::TcpRendezvous::join(address, secret, rank, ranks, {seconds}, result);
  }
  std::unique_ptr<Rendezvous> joined(int rank, int ranks, double seconds = 40) const {
    std::unique_ptr<Rendezvous> result;
    EXPECT_OK(join(rank, ranks, &result, seconds));
    EXPECT(result->rank() == rank && result->ranks() == ranks);
    return result;
  }
};

// A hub in a process of its own, so that the test itself has one thread when it forks.
class HubProcess {
 public:
  HubProcess() {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    pid_ = start_process([&] {
      meeting_ = Meeting::open();
      EXPECT(write(ends[1], &meeting_, sizeof meeting_) == sizeof meeting_);
      for (;;) pause();
    });
    REQUIRE(read(ends[0], &meeting_, sizeof meeting_) == sizeof meeting_);
    close(ends[0]);
    close(ends[1]);
  }
  HubProcess(const HubProcess&) = delete;
  HubProcess& operator=(const HubProcess&) = delete;
  ~HubProcess() { end(); }

  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    CHECK(wait_for_process(pid_) == -SIGKILL);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }
  const Meeting& operator*() const { return meeting_; }
  const Meeting* operator->() const { return &meeting_; }

 private:
  pid_t pid_ = 0;
  Meeting meeting_ = {};
};

// For bodies that have a hub, with its thread, in their process. The test itself has no threads when it forks, for
// a child inherits the locks of the sanitizers' allocators as they are, and waits indefinitely for one that a thread
// held. (That of the C library is made whole by fork itself.)
inline void run_process(const std::function<void()>& body) { CHECK(wait_for_process(start_process(body)) == 0); }

inline void run_threads_with_hub(int ranks, const std::function<void(const Meeting&, int rank)>& body) {
  run_process([&] {
    const Meeting meeting = Meeting::open();
    run_threads(ranks, [&](int rank) { body(meeting, rank); });
  });
}

// A number that forked processes share.
class SharedCount {
 public:
  SharedCount()
      : value_(static_cast<std::atomic<int>*>(
            mmap(nullptr, sizeof(*value_), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    REQUIRE(value_ != MAP_FAILED);
  }
  SharedCount(const SharedCount&) = delete;
  SharedCount& operator=(const SharedCount&) = delete;
  ~SharedCount() { munmap(value_, sizeof *value_); }

  void add() { value_->fetch_add(1); }
  int get() const { return value_->load(); }
  void wait_for(int count) const {
    while (get() < count) usleep(1000);
  }

 private:
  std::atomic<int>* value_;
};

// Waits for the failure that this rank must learn of.
inline ncast_status await_failure(const Rendezvous& rendezvous) {
  while (rendezvous.check_failure() == NCAST_OK) usleep(1000);
  return rendezvous.check_failure();
}

// A bare connection, of somebody who may say anything.
class Stranger {
 public:
  explicit Stranger(const bootstrap::TcpAddress& address) {
    sockaddr_storage storage;
    const socklen_t bytes = address.socket_address(&storage);
    EXPECT(socket_.open([&] { return socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0); }));
    EXPECT(connect(socket_.get(), reinterpret_cast<sockaddr*>(&storage), bytes) == 0);
  }

  void say(const void* bytes, size_t count) { static_cast<void>(send(socket_.get(), bytes, count, MSG_NOSIGNAL)); }
  void say(bootstrap::MessageKind kind, uint64_t payload_bytes) {
    const bootstrap::MessageHeader header = {kind, 0, payload_bytes};
    say(&header, sizeof header);
  }
  void say_hello(const bootstrap::Hello& hello) {
    say(bootstrap::MessageKind::hello, sizeof hello);
    say(&hello, sizeof hello);
  }
  // Until the hub closes the connection.
  std::string hear_all() {
    std::string heard;
    char bytes[4096];
    for (ssize_t count; (count = recv(socket_.get(), bytes, sizeof bytes, 0)) > 0;) {
      heard.append(bytes, static_cast<size_t>(count));
    }
    return heard;
  }
  // `count` bytes; fewer when the hub closes the connection before.
  std::string hear(size_t count) {
    std::string heard(count, 0);
    const ssize_t got = recv(socket_.get(), heard.data(), count, MSG_WAITALL);
    heard.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return heard;
  }

 private:
  bootstrap::Descriptor socket_;
};

inline bootstrap::Hello hello_of(const Meeting& meeting, int rank, int ranks) {
  bootstrap::Hello hello = {{}, meeting.secret, bootstrap::protocol_version, rank, ranks, 0, getpid(), "somewhere"};
  std::copy(std::begin(bootstrap::hello_magic), std::end(bootstrap::hello_magic), hello.magic);
  return hello;
}

}  // namespace narrowcast::testing
