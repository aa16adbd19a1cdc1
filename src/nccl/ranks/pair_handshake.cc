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

constexpr int pause_milliseconds = 20;
constexpr char word_magic[8] = "NcMeet1";  // with the version of Word

struct Word {
  char magic[8];
  uint64_t secret;
  Wish wish;
};

// Linux's abstract names: they end with the process, and are seen in one network namespace. The address's length.
socklen_t make_address(uint64_t name, int rank, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  const int length = std::snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "narrowcast-nccl.%016llx.%d",
                                   static_cast<unsigned long long>(name), rank);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
}

}  // namespace

std::unique_ptr<Meeting> Meeting::create(const UniqueId& id, int rank) {
  const std::string bytes(id.bytes, sizeof id.bytes);
  const uint64_t name = std::hash<std::string>()(bytes), secret = std::hash<std::string>()("secret" + bytes);
  const int made = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0) return nullptr;
  std::unique_ptr<Meeting> meeting(new Meeting(made, name, secret, rank));
  sockaddr_un address;
  const socklen_t length = make_address(name, rank, &address);
  if (bind(made, reinterpret_cast<const sockaddr*>(&address), length) != 0) return nullptr;
  return meeting;
}

Meeting::~Meeting() { close(socket_); }

// A second telling does no harm.
Meeting::Telling Meeting::tell(Wish own) const {
  Word word = {};
  std::memcpy(word.magic, word_magic, sizeof word_magic);
  word.secret = secret_;
  word.wish = own;
  sockaddr_un address;
  const socklen_t length = make_address(name_, 1 - rank_, &address);
  if (sendto(socket_, &word, sizeof word, 0, reinterpret_cast<const sockaddr*>(&address), length) >= 0)
    return Telling::told;
  return errno == ECONNREFUSED ? Telling::nobody_there : Telling::not_now;
}

std::optional<Wish> Meeting::heard(int milliseconds) const {
  pollfd waiting = {socket_, POLLIN, 0};
  poll(&waiting, 1, milliseconds);
  Word word;
  for (ssize_t length; (length = recv(socket_, &word, sizeof word, 0)) >= 0;) {
    if (length != sizeof word || std::memcmp(word.magic, word_magic, sizeof word_magic) != 0 || word.secret != secret_)
      continue;
    if (word.wish >= Wish::none && word.wish <= Wish::eager) return word.wish;
  }
  return std::nullopt;
}

std::optional<Wish> Meeting::exchange(Wish own, const std::function<bool()>& is_over) {
  bool told = false;
  std::optional<Wish> other;
  while (!is_over()) {
    // Again and again, which shows whether the other end is there. One that has met may be gone.
    const Telling telling = tell(own);
    told = told || telling == Telling::told;
    if (const auto word = heard(telling == Telling::nobody_there ? 0 : pause_milliseconds)) other = word;
    if (told && other) return other;
    if (telling == Telling::nobody_there) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace narrowcast::nccl
