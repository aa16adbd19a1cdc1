#include "nccl/ranks/pair_handshake.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace narrowcast::nccl {
namespace {

constexpr int poll_milliseconds = 20;
constexpr char message_magic[8] = "NcMeet2";  // with the version of Message

struct Message {
  char magic[8];
  digest::Sha256 secret;
  Readiness readiness;
};

// A Linux abstract socket address: it disappears with the process and is visible in one network namespace, to all users
// (/proc/net/unix). Returns its length.
socklen_t make_address(const std::string& name, int rank, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  const int length =
      std::snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "narrowcast-nccl.%s.%d", name.c_str(), rank);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
}

// Receives a datagram and the user that sent it, according to the kernel. Returns the length; -1 if there is none.
ssize_t receive_from(int socket, Message* message, std::optional<uid_t>* sender) {
  iovec data = {message, sizeof *message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  const ssize_t length = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  *sender = std::nullopt;
  const cmsghdr* const part = length < 0 ? nullptr : CMSG_FIRSTHDR(&header);
  if (part != nullptr && part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_CREDENTIALS) {
    ucred credentials;
    std::memcpy(&credentials, CMSG_DATA(part), sizeof credentials);
    *sender = credentials.uid;
  }
  // A longer datagram is not a message either.
  return (header.msg_flags & MSG_TRUNC) != 0 ? 0 : length;
}

}  // namespace

std::unique_ptr<PairHandshake> PairHandshake::create(const UniqueId& id, int rank) {
  const std::string_view bytes(id.bytes, sizeof id.bytes);
  const std::string name = digest::hex(digest::sha256("narrowcast handshake name", bytes), 32);
  const digest::Sha256 secret = digest::sha256("narrowcast handshake secret", bytes);
  const int created = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (created < 0) return nullptr;
  std::unique_ptr<PairHandshake> handshake(new PairHandshake(created, name, secret, rank));
  constexpr int pass_credentials = 1;
  if (setsockopt(created, SOL_SOCKET, SO_PASSCRED, &pass_credentials, sizeof pass_credentials) != 0) return nullptr;
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

PairHandshake::Received PairHandshake::receive(int milliseconds) const {
  pollfd waiting = {socket_, POLLIN, 0};
  poll(&waiting, 1, milliseconds);
  Message message;
  std::optional<uid_t> sender;
  for (ssize_t length; (length = receive_from(socket_, &message, &sender)) >= 0;) {
    if (length != sizeof message || std::memcmp(message.magic, message_magic, sizeof message_magic) != 0 ||
        message.secret != secret_)
      continue;
    if (sender != getuid()) return {std::nullopt, true};
    if (message.readiness >= Readiness::cannot_attach && message.readiness <= Readiness::wants_to_attach)
      return {message.readiness, false};
  }
  return {};
}

std::optional<Readiness> PairHandshake::exchange(Readiness own, const std::function<bool()>& is_over) {
  bool sent = false;
  std::optional<Readiness> other;
  while (!is_over()) {
    // Send again in every round, to find out whether the other socket still exists. A peer that has received our
    // message and answered may have closed it.
    const Sent result = send(own);
    sent = sent || result == Sent::yes;
    const Received received = receive(result == Sent::no_receiver ? 0 : poll_milliseconds);
    if (received.is_of_other_user) return std::nullopt;
    if (received.readiness) other = received.readiness;
    if (sent && other) return other;
    if (result == Sent::no_receiver) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace narrowcast::nccl
