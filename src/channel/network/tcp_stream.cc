#include "channel/network/tcp_stream.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>

#include "channel/network/idle_pause.h"
#include "status/error.h"
#include "status/system_error.h"

namespace narrowcast::channel {

ncast_status TcpStream::make(std::unique_ptr<bootstrap::Connection> connection, std::unique_ptr<Stream>* stream) {
  const int socket = connection->socket.get();
  if (fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) & ~O_NONBLOCK) != 0)
    return fail(NCAST_SYSTEM_ERROR, "cannot change a socket: %s", system_error_text(errno).c_str());
  stream->reset(new TcpStream(std::move(connection)));
  return NCAST_OK;
}

int TcpStream::send(std::span<iovec> parts) {
  for (skip(&parts, 0); !parts.empty();) {
    msghdr message = {};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t sent = sendmsg(socket(), &message, MSG_NOSIGNAL);
    if (sent < 0 && errno != EINTR) return errno;
    if (sent > 0) skip(&parts, static_cast<size_t>(sent));
  }
  return 0;
}

int TcpStream::receive(std::span<iovec> parts, size_t* bytes) {
  msghdr message = {};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  // A thread that sleeps wakes up late.
  for (IdlePause pause;;) {
    const ssize_t got = recvmsg(socket(), &message, pause.spins() ? MSG_DONTWAIT : 0);
    if (got > 0) {
      *bytes = static_cast<size_t>(got);
      return 0;
    }
    if (got == 0) return closed;
    if (errno != EINTR && errno != EAGAIN) return errno;
  }
}

int TcpStream::receive_all(void* to, size_t bytes) {
  for (auto* at = static_cast<char*>(to); bytes != 0;) {
    const ssize_t got = recv(socket(), at, bytes, MSG_WAITALL);
    if (got == 0) return closed;
    if (got < 0 && errno != EINTR) return errno;
    if (got < 0) continue;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return 0;
}

void TcpStream::shut_down() { shutdown(socket(), SHUT_RDWR); }

std::string TcpStream::describe(int error) const { return system_error_text(error); }

}  // namespace narrowcast::channel
