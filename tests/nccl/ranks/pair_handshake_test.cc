// Two ranks that meet, and one whose peer is not there.
#include "nccl/ranks/pair_handshake.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "doctest/doctest.h"

using namespace narrowcast::nccl;

namespace {

constexpr auto late = std::chrono::milliseconds(60);

UniqueId new_id() {
  UniqueId id;
  std::random_device random;
  for (char& byte : id.bytes) byte = static_cast<char>(random());
  return id;
}

bool never() { return false; }

// What both hear, if the second speaks later.
std::pair<std::optional<Readiness>, std::optional<Readiness>> meet(PairHandshake& first, Readiness of_first,
                                                                   PairHandshake& second, Readiness of_second) {
  std::optional<Readiness> heard;
  std::thread other([&] { heard = first.exchange(of_first, never); });
  std::this_thread::sleep_for(late);
  const auto by_second = second.exchange(of_second, never);
  other.join();
  return {heard, by_second};
}

TEST_CASE("two ranks hear what the other wishes, whoever comes first") {
  for (const int first : {0, 1}) {
    const UniqueId id = new_id();
    const auto one = PairHandshake::create(id, first), other = PairHandshake::create(id, 1 - first);
    const auto [by_first, by_second] = meet(*one, Readiness::wants_to_attach, *other, Readiness::cannot_attach);
    CHECK(by_first == Readiness::cannot_attach);
    CHECK(by_second == Readiness::wants_to_attach);
  }
}

TEST_CASE("a rank whose peer has no end does not wait") {
  CHECK(PairHandshake::create(new_id(), 0)->exchange(Readiness::can_attach, never) == std::nullopt);
}

TEST_CASE("a rank hears a peer that has met and gone") {
  const UniqueId id = new_id();
  const auto one = PairHandshake::create(id, 0);
  auto other = PairHandshake::create(id, 1);
  std::thread gone([&] {
    CHECK(other->exchange(Readiness::wants_to_attach, never) == Readiness::can_attach);
    other.reset();
  });
  CHECK(one->exchange(Readiness::can_attach, never) == Readiness::wants_to_attach);
  gone.join();
}

TEST_CASE("a peer that goes away unheard ends the wait, and so does the end of the communicator") {
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

TEST_CASE("an id leads to one end a rank") {
  const UniqueId id = new_id();
  const auto one = PairHandshake::create(id, 0);
  CHECK(PairHandshake::create(id, 0) == nullptr);
  CHECK(PairHandshake::create(id, 1) != nullptr);
  CHECK(PairHandshake::create(new_id(), 0) != nullptr);
}

// Names stand where every user may read them.
std::string name_of(int rank) {
  std::ifstream names("/proc/net/unix");
  const std::string wanted = "@narrowcast-nccl.", end = "." + std::to_string(rank);
  for (std::string line; std::getline(names, line);)
    if (const size_t at = line.find(wanted); at != line.npos && line.ends_with(end)) return line.substr(at + 1);
  return "";
}

TEST_CASE("what others send is not listened to") {
  const UniqueId id = new_id();
  const auto one = PairHandshake::create(id, 0), other = PairHandshake::create(id, 1);
  const std::string name = name_of(0);
  if (!name.empty()) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    const int stranger = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const std::string right("NcMeet1\0", 8), wish(8, '\3');
    for (const std::string& word : {std::string(), right, right + std::string(8, 's') + wish, std::string(500, 'x')})
      sendto(stranger, word.data(), word.size(), 0, reinterpret_cast<const sockaddr*>(&address), length);
    while (sendto(stranger, "", 0, 0, reinterpret_cast<const sockaddr*>(&address), length) >= 0)
      continue;  // it is full
    close(stranger);
  }
  const auto [by_second, by_first] = meet(*other, Readiness::cannot_attach, *one, Readiness::can_attach);
  CHECK(by_first == Readiness::cannot_attach);
  CHECK(by_second == Readiness::can_attach);
}

}  // namespace
