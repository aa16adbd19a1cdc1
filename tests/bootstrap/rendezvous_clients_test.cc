// The TCP rendezvous ignores clients that do not know the secret. It reports other library versions, ranks that violate
// the protocol, and listeners that are not hubs.
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous_ranks.h"

namespace narrowcast::testing {
namespace {

using bootstrap::MessageKind;

TEST_CASE("clients that do not know the secret are ignored") {
  const HubProcess hub;
  SharedCount clients_done;
  run_processes(3, [&](int caller) {
    if (caller < 2) {
      clients_done.wait_for(1);
      const auto rendezvous = hub->must_join(caller, 2);
      for (int round = 0; round < 20; ++round) EXPECT_OK(rendezvous->barrier());
      clients_done.add();
      clients_done.wait_for(4);
      EXPECT_OK(rendezvous->barrier());
      EXPECT_OK(rendezvous->check_failure());
      return;
    }
    std::vector<std::unique_ptr<RawClient>> clients;
    const auto new_client = [&]() -> RawClient& {
      clients.push_back(std::make_unique<RawClient>(hub->address));
      return *clients.back();
    };
    // More connections than the hub keeps pending, which send nothing. The hub drops the oldest.
    for (int i = 0; i < 300; ++i) new_client();
    bootstrap::WorldId wrong = hub->secret;
    wrong[1] ^= 1;
    constexpr size_t challenge_bytes = sizeof(bootstrap::MessageHeader) + sizeof(bootstrap::HubChallenge);
    const auto try_everything = [&] {
      RawClient& spy = new_client();
      spy.send_hello(hello_of(0, 2), wrong);
      EXPECT(spy.read_to_end().empty());
      // A proof that was right on another connection.
      RawClient& first = new_client();
      bootstrap::Hello replayed = hello_of(0, 2);
      replayed.proof = bootstrap::prove_hello(hub->secret, first.read_challenge().challenge, bytes_of(replayed));
      RawClient& second = new_client();
      second.read_challenge();
      second.send_bytes(MessageKind::hello, sizeof replayed);
      second.send_bytes(&replayed, sizeof replayed);
      EXPECT(second.read_to_end().empty());
      RawClient& browser = new_client();
      const std::string request = "GET / HTTP/1.1\r\nHost: narrowcast\r\n\r\n";
      browser.send_bytes(request.data(), request.size());
      EXPECT(browser.read_to_end().size() <= challenge_bytes);
      RawClient& oversized = new_client();
      oversized.send_bytes(MessageKind::hello, UINT64_MAX);
      EXPECT(oversized.read_to_end().size() <= challenge_bytes);
      RawClient& short_one = new_client();
      short_one.send_bytes(MessageKind::hello, 3);
      short_one.send_bytes("abc", 3);
      EXPECT(short_one.read_to_end().size() <= challenge_bytes);
      RawClient& early = new_client();
      early.send_bytes(MessageKind::gather, 0);
      EXPECT(early.read_to_end().size() <= challenge_bytes);
      // Half a hello, and nothing more.
      const bootstrap::Hello hello = hello_of(0, 2);
      RawClient& slow = new_client();
      slow.send_bytes(MessageKind::hello, sizeof hello);
      slow.send_bytes(&hello, 20);
      // A client that disconnects at once.
      RawClient(hub->address).send_bytes("x", 1);
    };
    try_everything();
    clients_done.add();
    try_everything();
    clients_done.wait_for(3);
    try_everything();
    clients_done.add();
  });
}

TEST_CASE("another version of the library is a mismatch") {
  const HubProcess hub;
  run_processes(1, [&](int) {
    bootstrap::Hello hello = hello_of(1, 2);
    hello.version += 1;
    RawClient other(hub->address);
    other.send_hello(hello, hub->secret);
    const std::string received = other.read_bytes(sizeof(bootstrap::MessageHeader) + sizeof(bootstrap::FailureMessage));
    EXPECT(received.find("another version of the library") != std::string::npos);
  });
  std::unique_ptr<Rendezvous> rendezvous;
  CHECK(hub->join(0, 2, &rendezvous) == NCAST_MISMATCH);
  CHECK(error_contains("another version of the library"));
}

TEST_CASE("a rank that violates the protocol is removed") {
  struct Case {
    MessageKind kind;
    uint64_t payload_bytes;
  };
  for (const Case& invalid : {Case{MessageKind::gather, 0}, Case{MessageKind::gather, UINT64_MAX},
                              Case{MessageKind::welcome, 0}, Case{static_cast<MessageKind>(99), 8}}) {
    const HubProcess hub;
    run_processes(2, [&](int caller) {
      if (caller == 0) {
        std::unique_ptr<Rendezvous> rendezvous;
        EXPECT(hub->join(0, 2, &rendezvous) == NCAST_OK || error_contains("rank 1 (pid "));
        if (rendezvous != nullptr) EXPECT(wait_for_failure(*rendezvous) == NCAST_REMOTE_ERROR);
        EXPECT(error_contains("rank 1 (pid "));
        return;
      }
      RawClient rank(hub->address);
      rank.send_hello(hello_of(1, 2), hub->secret);
      // Twice, because a second gather before the end of the first one is a violation as well.
      for (int i = 0; i < 2; ++i) {
        rank.send_bytes(invalid.kind, invalid.payload_bytes);
        if (invalid.payload_bytes <= 8) rank.send_bytes("12345678", invalid.payload_bytes);
      }
      rank.read_to_end();
    });
  }
}

TEST_CASE("a failure message with invalid fields is still a failure") {
  const HubProcess hub;
  run_processes(2, [&](int caller) {
    if (caller == 0) {
      const auto rendezvous = hub->must_join(0, 2);
      EXPECT(wait_for_failure(*rendezvous) == NCAST_REMOTE_ERROR);
      EXPECT(error_contains("rank 1 reports: zzzz"));
      return;
    }
    RawClient rank(hub->address);
    rank.send_hello(hello_of(1, 2), hub->secret);
    rank.read_bytes(sizeof(bootstrap::MessageHeader) + sizeof(bootstrap::Proof));  // the welcome
    bootstrap::FailureMessage failure = {1000, 77, {}};
    std::memset(failure.text, 'z', sizeof failure.text);
    rank.send_bytes(MessageKind::failure, sizeof failure);
    rank.send_bytes(&failure, sizeof failure);
    rank.read_bytes(100);
  });
}

TEST_CASE("a listener that is not a hub is reported") {
  bootstrap::Descriptor listener;
  sockaddr_storage address;
  bootstrap::TcpAddress any = {};
  any.version = 4;
  any.ip[0] = 127;
  any.ip[3] = 1;
  socklen_t bytes = any.socket_address(&address);
  REQUIRE(listener.open([] { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }));
  REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), bytes) == 0);
  REQUIRE(::listen(listener.get(), 8) == 0);
  REQUIRE(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &bytes) == 0);
  const HubAddress hub = {bootstrap::TcpAddress::from(reinterpret_cast<sockaddr*>(&address)), {}};
  const std::string nothing, ssh = "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n";
  const std::string endless("\6\0\0\0\0\0\0\0\377\377\377\377\377\0\0\0", 16);  // `gathered` with a payload of 1 TB
  for (const std::string& greeting : {nothing, ssh, endless}) {
    std::thread server([&] {
      const int client = accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC);
      EXPECT(client >= 0);
      send(client, greeting.data(), greeting.size(), MSG_NOSIGNAL);
      char hello[bootstrap::hello_stable_bytes];
      static_cast<void>(recv(client, hello, sizeof hello, 0));
      close(client);
    });
    std::unique_ptr<Rendezvous> rendezvous;
    CHECK(hub.join(0, 1, &rendezvous, 2) == NCAST_REMOTE_ERROR);
    CHECK((error_contains("is not a rendezvous of this library") || error_contains("does not know the id")));
    server.join();
  }
}

}  // namespace
}  // namespace narrowcast::testing
