// Ranks that meet over TCP are protected from strangers, other versions and ranks that break the protocol. Addresses
// where no hub listens are reported.
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous_ranks.h"

namespace narrowcast::testing {
namespace {

using bootstrap::MessageKind;

TEST_CASE("StrangersDoNotDisturb") {
  const HubProcess hub;
  SharedCount strange;
  run_processes(3, [&](int caller) {
    if (caller < 2) {
      strange.wait_for(1);
      const auto rendezvous = hub->joined(caller, 2);
      for (int round = 0; round < 20; ++round) EXPECT_OK(rendezvous->barrier());
      strange.add();
      strange.wait_for(4);
      EXPECT_OK(rendezvous->barrier());
      EXPECT_OK(rendezvous->check_failure());
      return;
    }
    std::vector<std::unique_ptr<Stranger>> strangers;
    const auto stranger = [&]() -> Stranger& {
      strangers.push_back(std::make_unique<Stranger>(hub->address));
      return *strangers.back();
    };
    // More than the hub bears: the oldest go. These say nothing.
    for (int i = 0; i < 300; ++i) stranger();
    bootstrap::Hello wrong = hello_of(*hub, 0, 2);
    wrong.secret[1] ^= 1;
    const auto try_everything = [&] {
      Stranger& spy = stranger();
      spy.say_hello(wrong);
      EXPECT(spy.hear_all().empty());
      Stranger& browser = stranger();
      const std::string request = "GET / HTTP/1.1\r\nHost: narrowcast\r\n\r\n";
      browser.say(request.data(), request.size());
      EXPECT(browser.hear_all().empty());
      Stranger& glutton = stranger();
      glutton.say(MessageKind::hello, UINT64_MAX);
      EXPECT(glutton.hear_all().empty());
      Stranger& short_one = stranger();
      short_one.say(MessageKind::hello, 3);
      short_one.say("abc", 3);
      EXPECT(short_one.hear_all().empty());
      Stranger& early = stranger();
      early.say(MessageKind::gather, 0);
      EXPECT(early.hear_all().empty());
      // Half a hello, and then silence.
      const bootstrap::Hello hello = hello_of(*hub, 0, 2);
      Stranger& slow = stranger();
      slow.say(MessageKind::hello, sizeof hello);
      slow.say(&hello, 20);
      // One that hangs up while the hub may still look at it.
      Stranger(hub->address).say("x", 1);
    };
    try_everything();
    strange.add();
    try_everything();
    strange.wait_for(3);
    try_everything();
    strange.add();
  });
}

TEST_CASE("AnotherVersionIsTold") {
  const HubProcess hub;
  run_processes(1, [&](int) {
    bootstrap::Hello hello = hello_of(*hub, 1, 2);
    hello.version += 1;
    Stranger other(hub->address);
    other.say_hello(hello);
    const std::string heard = other.hear(sizeof(bootstrap::MessageHeader) + sizeof(bootstrap::FailureMessage));
    EXPECT(heard.find("another version of the library") != std::string::npos);
  });
  std::unique_ptr<Rendezvous> rendezvous;
  CHECK(hub->join(0, 2, &rendezvous) == NCAST_MISMATCH);
  CHECK(sentence_has("another version of the library"));
}

TEST_CASE("ARankThatBreaksTheRulesIsExpelled") {
  struct Case {
    MessageKind kind;
    uint64_t payload_bytes;
  };
  for (const Case& broken : {Case{MessageKind::gather, 0}, Case{MessageKind::gather, UINT64_MAX},
                             Case{MessageKind::welcome, 0}, Case{static_cast<MessageKind>(99), 8}}) {
    const HubProcess hub;
    run_processes(2, [&](int caller) {
      if (caller == 0) {
        std::unique_ptr<Rendezvous> rendezvous;
        EXPECT(hub->join(0, 2, &rendezvous) == NCAST_OK || sentence_has("rank 1 (pid "));
        if (rendezvous != nullptr) EXPECT(await_failure(*rendezvous) == NCAST_REMOTE_ERROR);
        EXPECT(sentence_has("rank 1 (pid "));
        return;
      }
      Stranger rank(hub->address);
      rank.say_hello(hello_of(*hub, 1, 2));
      // Twice: a second gather while the first runs breaks the rules as well.
      for (int i = 0; i < 2; ++i) {
        rank.say(broken.kind, broken.payload_bytes);
        if (broken.payload_bytes <= 8) rank.say("12345678", broken.payload_bytes);
      }
      rank.hear_all();
    });
  }
}

TEST_CASE("AFailureOfARankThatSendsNonsenseIsStillAFailure") {
  const HubProcess hub;
  run_processes(2, [&](int caller) {
    if (caller == 0) {
      const auto rendezvous = hub->joined(0, 2);
      EXPECT(await_failure(*rendezvous) == NCAST_REMOTE_ERROR);
      EXPECT(sentence_has("rank 1 reports: zzzz"));
      return;
    }
    Stranger rank(hub->address);
    rank.say_hello(hello_of(*hub, 1, 2));
    rank.hear(sizeof(bootstrap::MessageHeader));  // the welcome
    bootstrap::FailureMessage failure = {1000, 77, {}};
    std::memset(failure.sentence, 'z', sizeof failure.sentence);
    rank.say(MessageKind::failure, sizeof failure);
    rank.say(&failure, sizeof failure);
    rank.hear(100);
  });
}

TEST_CASE("AListenerThatIsNoHubIsToldFromOne") {
  bootstrap::Descriptor listener;
  sockaddr_storage address;
  bootstrap::TcpAddress any = {};
  any.version = 4;
  any.ip[0] = 127;
  any.ip[3] = 1;
  socklen_t bytes = any.socket_address(&address);
  REQUIRE(listener.open([] { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }));
  REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), bytes) == 0);
  REQUIRE(listen(listener.get(), 8) == 0);
  REQUIRE(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &bytes) == 0);
  const Meeting meeting = {bootstrap::TcpAddress::from(reinterpret_cast<sockaddr*>(&address)), {}};
  const std::string nothing, ssh = "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n";
  const std::string endless("\6\0\0\0\0\0\0\0\377\377\377\377\377\0\0\0", 16);  // gathered, some TB
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
    CHECK(meeting.join(0, 1, &rendezvous) == NCAST_REMOTE_ERROR);
    CHECK((sentence_has("is no rendezvous of this library") || sentence_has("does not know the id")));
    server.join();
  }
}

}  // namespace
}  // namespace narrowcast::testing
