#include "channel/network/stream.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "bootstrap/tcp_connection.h"
#include "status/error.h"
#include "status/system_error.h"

namespace narrowcast::channel {

ncast_status make_blocking(int socket) {
  if (fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) & ~O_NONBLOCK) == 0) return NCAST_OK;
  return fail(NCAST_SYSTEM_ERROR, "cannot change a socket: %s", system_error_text(errno).c_str());
}

void find_loss_within(int socket, bootstrap::Limit call_limit) {
  const double limit = call_limit.seconds;
  bootstrap::limit_silence(socket, limit <= 0 ? bootstrap::longest_silence_seconds : 0.8 * limit);
}

void skip(std::span<iovec>* parts, size_t bytes) {
  while (!parts->empty()) {
    iovec& first = parts->front();
    const size_t skipped = std::min(bytes, first.iov_len);
    first.iov_base = static_cast<char*>(first.iov_base) + skipped;
    first.iov_len -= skipped;
    bytes -= skipped;
    if (first.iov_len != 0) return;
    *parts = parts->subspan(1);
  }
}

int send_all(int socket, std::span<iovec> parts) {
  for (skip(&parts, 0); !parts.empty();) {
    msghdr message = {};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno != EINTR) return errno;
    if (sent > 0) skip(&parts, static_cast<size_t>(sent));
  }
  return 0;
}

ncast_status fail_of_connection(const std::string& name, int error) {
  switch (error) {
    case 0:
    case ECONNRESET:
    case EPIPE: return fail(NCAST_REMOTE_ERROR, "%s died", name.c_str());
    case ETIMEDOUT: return fail(NCAST_REMOTE_ERROR, "%s is lost: its host does not answer", name.c_str());
    case EBADMSG: return fail(NCAST_CORRUPT, "the connection to %s broke: what it sent is not valid", name.c_str());
    default:
      return fail(NCAST_REMOTE_ERROR, "the connection to %s broke: %s", name.c_str(), system_error_text(error).c_str());
  }
}

}  // namespace narrowcast::channel
