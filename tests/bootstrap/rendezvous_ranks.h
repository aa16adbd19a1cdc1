// Ranks that connect to a hub, for the tests of the rendezvous.
#pragma once

#include <sys/mman.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "bootstrap/shared_memory.h"
#include "bootstrap/tcp_hub_server.h"
#include "bootstrap/tcp_messages.h"
#include "bootstrap/tcp_rendezvous.h"
#include "support/last_error.h"
#include "support/ranks.h"

namespace narrowcast::testing {

using bootstrap::Clock;
using bootstrap::Rendezvous;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The address and secret of a hub. A unique id contains the same.
struct HubAddress {
  bootstrap::TcpAddress address;
  bootstrap::WorldId secret;

  static HubAddress start_hub() {
    HubAddress hub;
    EXPECT_OK(bootstrap::random_bytes(&hub.secret, sizeof hub.secret));
    EXPECT_OK(bootstrap::open_rendezvous(hub.secret, {0}, bootstrap::Reach::anywhere, &hub.address));
    return hub;
  }

  ncast_status join(int rank, int ranks, std::unique_ptr<Rendezvous>* result, double seconds = 40) const {
    return bootstrap::TcpRendezvous::join(address, secret, rank, ranks, {seconds}, result);
  }
  std::unique_ptr<Rendezvous> must_join(int rank, int ranks, double seconds = 40) const {
    std::unique_ptr<Rendezvous> result;
    EXPECT_OK(join(rank, ranks, &result, seconds));
    EXPECT(result->rank() == rank && result->ranks() == ranks);
    return result;
  }
};

// A hub in its own process, so that the test process has a single thread when it forks.
class HubProcess {
 public:
  HubProcess() {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    pid_ = start_process([&] {
      address_ = HubAddress::start_hub();
      EXPECT(write(ends[1], &address_, sizeof address_) == sizeof address_);
      for (;;) pause();
    });
    REQUIRE(read(ends[0], &address_, sizeof address_) == sizeof address_);
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
  const HubAddress& operator*() const { return address_; }
  const HubAddress* operator->() const { return &address_; }

 private:
  pid_t pid_ = 0;
  HubAddress address_ = {};
};

// Runs `body` in a forked process. For bodies that start a hub, and so a thread, in their own process: the test process
// must have no other threads when it forks, because a child inherits the locks of the sanitizers' allocators and would
// wait indefinitely for one that another thread held. (fork() itself resets the locks of the C library.)
inline void run_process(const std::function<void()>& body) { CHECK(wait_for_process(start_process(body)) == 0); }

inline void run_threads_with_hub(int ranks, const std::function<void(const HubAddress&, int rank)>& body) {
  run_process([&] {
    const HubAddress hub = HubAddress::start_hub();
    run_threads(ranks, [&](int rank) { body(hub, rank); });
  });
}

// A counter that forked processes share.
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

// Waits until this rank knows of a failure, and returns its status.
inline ncast_status wait_for_failure(const Rendezvous& rendezvous) {
  while (rendezvous.check_failure() == NCAST_OK) usleep(1000);
  return rendezvous.check_failure();
}

// A bare TCP connection that can send any bytes.
class RawClient {
 public:
  explicit RawClient(const bootstrap::TcpAddress& address) {
    sockaddr_storage storage;
    const socklen_t bytes = address.socket_address(&storage);
    EXPECT(socket_.open([&] { return socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0); }));
    EXPECT(connect(socket_.get(), reinterpret_cast<sockaddr*>(&storage), bytes) == 0);
  }

  void send_bytes(const void* bytes, size_t count) {
    static_cast<void>(send(socket_.get(), bytes, count, MSG_NOSIGNAL));
  }
  void send_bytes(bootstrap::MessageKind kind, uint64_t payload_bytes) {
    const bootstrap::MessageHeader header = {kind, 0, payload_bytes};
    send_bytes(&header, sizeof header);
  }
  // Reads the challenge of the hub, and answers it.
  void send_hello(bootstrap::Hello hello, const bootstrap::WorldId& secret) {
    const auto challenge = read_challenge();
    hello.proof = bootstrap::prove_hello(secret, challenge.challenge, bootstrap::bytes_of(hello));
    send_bytes(bootstrap::MessageKind::hello, sizeof hello);
    send_bytes(&hello, sizeof hello);
  }
  bootstrap::HubChallenge read_challenge() {
    bootstrap::HubChallenge challenge = {};
    const std::string received = read_bytes(sizeof(bootstrap::MessageHeader) + sizeof challenge);
    if (received.size() == sizeof(bootstrap::MessageHeader) + sizeof challenge)
      std::memcpy(&challenge, received.data() + sizeof(bootstrap::MessageHeader), sizeof challenge);
    return challenge;
  }
  // Reads until the hub closes the connection.
  std::string read_to_end() {
    std::string received;
    char bytes[4096];
    for (ssize_t count; (count = recv(socket_.get(), bytes, sizeof bytes, 0)) > 0;) {
      received.append(bytes, static_cast<size_t>(count));
    }
    return received;
  }
  // Reads `count` bytes, or fewer if the hub closes the connection.
  std::string read_bytes(size_t count) {
    std::string received(count, 0);
    const ssize_t bytes = recv(socket_.get(), received.data(), count, MSG_WAITALL);
    received.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
    return received;
  }

 private:
  bootstrap::Descriptor socket_;
};

inline bootstrap::Hello hello_of(int rank, int ranks) {
  bootstrap::Hello hello = {{}, bootstrap::protocol_version, rank, {1, 2}, {}, ranks, 0, getpid(), "somewhere"};
  std::copy(std::begin(bootstrap::hello_magic), std::end(bootstrap::hello_magic), hello.magic);
  return hello;
}

}  // namespace narrowcast::testing
