#include "nccl/ranks/pair_handshake.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>

namespace narrowcast::nccl {
namespace {

constexpr int poll_milliseconds = 20;
constexpr char message_magic[8] = "NcMeet1";  // with the version of Message

struct Message {
  char magic[8];
  uint64_t secret;
  Readiness readiness;
};

// A Linux abstract socket address: it disappears with the process and is visible in one network namespace. Returns its
// length.
socklen_t make_address(uint64_t name, int rank, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  const int length = std::snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "narrowcast-nccl.%016llx.%d",
                                   static_cast<unsigned long long>(name), rank);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
}

}  // namespace

std::unique_ptr<PairHandshake> PairHandshake::create(const UniqueId& id, int rank) {
  const std::string bytes(id.bytes, sizeof id.bytes);
  const uint64_t name = std::hash<std::string>()(bytes), secret = std::hash<std::string>()("secret" + bytes);
  const int created = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (created < 0) return nullptr;
  std::unique_ptr<PairHandshake> handshake(new PairHandshake(created, name, secret, rank));
  sockaddr_un address;
  const socklen_t length = make_address(name, rank, &address);
  if (bind(created, reinterpret_cast<const sockaddr*>(&address), length) != 0) return nullptr;
  return handshake;
}

PairHandshake::~PairHandshake() { close(socket_); }

// Repeated messages are harmless.
PairHandshake::Sent PairHandshake::send(Readiness own) const {
  Message message = {};
  std::memcpy(message.magic, message_magic, sizeof message_magic);
  message.secret = secret_;
  message.readiness = own;
  sockaddr_un address;
  const socklen_t length = make_address(name_, 1 - rank_, &address);
  if (sendto(socket_, &message, sizeof message, 0, reinterpret_cast<const sockaddr*>(&address), length) >= 0)
    return Sent::yes;
  return errno == ECONNREFUSED ? Sent::no_receiver : Sent::not_now;
}

std::optional<Readiness> PairHandshake::receive(int milliseconds) const {
  pollfd waiting = {socket_, POLLIN, 0};
  poll(&waiting, 1, milliseconds);
  Message message;
  for (ssize_t length; (length = recv(socket_, &message, sizeof message, 0)) >= 0;) {
    if (length != sizeof message || std::memcmp(message.magic, message_magic, sizeof message_magic) != 0 ||
        message.secret != secret_)
      continue;
    if (message.readiness >= Readiness::cannot_attach && message.readiness <= Readiness::wants_to_attach)
      return message.readiness;
  }
  return std::nullopt;
}

std::optional<Readiness> PairHandshake::exchange(Readiness own, const std::function<bool()>& is_over) {
  bool sent = false;
  std::optional<Readiness> other;
  while (!is_over()) {
    // Send again in every round, to find out whether the other socket still exists. A peer that has received our
    // message and answered may have closed it.
    const Sent result = send(own);
    sent = sent || result == Sent::yes;
    if (const auto received = receive(result == Sent::no_receiver ? 0 : poll_milliseconds)) other = received;
    if (sent && other) return other;
    if (result == Sent::no_receiver) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace narrowcast::nccl
