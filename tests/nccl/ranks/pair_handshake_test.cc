// Handshakes between two ranks, and with a missing peer.
#include "nccl/ranks/pair_handshake.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "digest/sha256.h"
#include "doctest/doctest.h"
#include "support/other_user.h"
#include "support/ranks.h"

namespace narrowcast::nccl {
namespace {

constexpr auto late = std::chrono::milliseconds(60);

UniqueId new_id() {
  UniqueId id;
  std::random_device random;
  for (char& byte : id.bytes) byte = static_cast<char>(random());
  return id;
}

bool never() { return false; }

// What each rank receives if the second one starts later.
std::pair<std::optional<Readiness>, std::optional<Readiness>> handshake(PairHandshake& first, Readiness of_first,
                                                                        PairHandshake& second, Readiness of_second) {
  std::optional<Readiness> by_first;
  std::thread other([&] { by_first = first.exchange(of_first, never); });
  std::this_thread::sleep_for(late);
  const auto by_second = second.exchange(of_second, never);
  other.join();
  return {by_first, by_second};
}

TEST_CASE("each rank receives the peer's readiness, whichever starts first") {
  for (const int first : {0, 1}) {
    const UniqueId id = new_id();
    const auto one = PairHandshake::create(id, first), other = PairHandshake::create(id, 1 - first);
    const auto [by_first, by_second] = handshake(*one, Readiness::wants_to_attach, *other, Readiness::cannot_attach);
    CHECK(by_first == Readiness::cannot_attach);
    CHECK(by_second == Readiness::wants_to_attach);
  }
}

TEST_CASE("a rank whose peer has no socket does not wait") {
  CHECK(PairHandshake::create(new_id(), 0)->exchange(Readiness::can_attach, never) == std::nullopt);
}

TEST_CASE("a rank receives the readiness of a peer that has finished and closed its socket") {
  const UniqueId id = new_id();
  const auto one = PairHandshake::create(id, 0);
  auto other = PairHandshake::create(id, 1);
  std::thread peer([&] {
    CHECK(other->exchange(Readiness::wants_to_attach, never) == Readiness::can_attach);
    other.reset();
  });
  CHECK(one->exchange(Readiness::can_attach, never) == Readiness::wants_to_attach);
  peer.join();
}

TEST_CASE("a peer that closes its socket ends the wait, and so does the end of the communicator") {
  const UniqueId id = new_id();
  const auto one = PairHandshake::create(id, 0);
  auto other = PairHandshake::create(id, 1);
  std::thread going([&] {
    std::this_thread::sleep_for(late);
    other.reset();
  });
  CHECK(one->exchange(Readiness::wants_to_attach, never) == std::nullopt);
  going.join();
  other = PairHandshake::create(id, 1);
  CHECK(one->exchange(Readiness::wants_to_attach, [] { return true; }) == std::nullopt);
}

TEST_CASE("each rank of an id has one socket") {
  const UniqueId id = new_id();
  const auto one = PairHandshake::create(id, 0);
  CHECK(PairHandshake::create(id, 0) == nullptr);
  CHECK(PairHandshake::create(id, 1) != nullptr);
  CHECK(PairHandshake::create(new_id(), 0) != nullptr);
}

std::string digits_of(const UniqueId& id) {
  const std::string_view bytes(id.bytes, sizeof id.bytes);
  return digest::hex(digest::sha256("narrowcast handshake name", bytes), 32);
}

std::string name_of(const UniqueId& id, int rank) {
  return "narrowcast-nccl." + digits_of(id) + "." + std::to_string(rank);
}

// With std::hash, which can be inverted, the name revealed the secret bytes of NCCL's id to all users.
TEST_CASE("the name and the secret of a socket are digests of the id for different purposes") {
  const UniqueId id = new_id();
  const auto one = PairHandshake::create(id, 0);
  std::ifstream file("/proc/net/unix");
  const std::string names{std::istreambuf_iterator<char>(file), {}};
  if (!names.empty()) CHECK(names.find("@" + name_of(id, 0)) != std::string::npos);
  const std::string_view bytes(id.bytes, sizeof id.bytes);
  CHECK(!digest::hex(digest::sha256("narrowcast handshake secret", bytes)).starts_with(digits_of(id)));
}

TEST_CASE("a peer of another user is not answered, even if it knows the id") {
  if (!testing::can_be_other_users("a peer of another user")) return;
  const UniqueId id = new_id();
  const auto one = PairHandshake::create(id, 0);
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  const pid_t other = testing::start_process([&] {
    EXPECT(setuid(testing::other_uid) == 0);
    const auto handshake = PairHandshake::create(id, 1);
    EXPECT(handshake != nullptr);
    EXPECT(write(pipe_ends[1], "x", 1) == 1);
    EXPECT(handshake->exchange(Readiness::wants_to_attach, never) == std::nullopt);
  });
  char byte;
  REQUIRE(read(pipe_ends[0], &byte, 1) == 1);
  CHECK(one->exchange(Readiness::wants_to_attach, never) == std::nullopt);
  CHECK(testing::wait_for_process(other) == 0);
  for (const int end : pipe_ends) close(end);
}

TEST_CASE("messages of other processes are ignored") {
  const UniqueId id = new_id();
  const auto one = PairHandshake::create(id, 0), other = PairHandshake::create(id, 1);
  const std::string name = name_of(id, 0);
  {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    const int stranger = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const std::string magic("NcMeet2\0", 8), readiness(1, '\3');
    const std::string wrong_secret = magic + std::string(32, 's') + readiness;
    for (const std::string& message : {std::string(), magic, wrong_secret, std::string(500, 'x')})
      sendto(stranger, message.data(), message.size(), 0, reinterpret_cast<const sockaddr*>(&address), length);
    while (sendto(stranger, "", 0, 0, reinterpret_cast<const sockaddr*>(&address), length) >= 0)
      continue;  // until the queue is full
    close(stranger);
  }
  const auto [by_second, by_first] = handshake(*other, Readiness::cannot_attach, *one, Readiness::can_attach);
  CHECK(by_first == Readiness::cannot_attach);
  CHECK(by_second == Readiness::can_attach);
}

}  // namespace
}  // namespace narrowcast::nccl
