#include "channel/network/stream.h"

#include <algorithm>
#include <cerrno>

#include "status/error.h"

namespace narrowcast::channel {

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

ncast_status fail_of_connection(const std::string& name, int error, const std::string& text) {
  switch (error) {
    case 0:
    case ECONNRESET:
    case EPIPE: return fail(NCAST_REMOTE_ERROR, "%s died", name.c_str());
    case ETIMEDOUT: return fail(NCAST_REMOTE_ERROR, "%s is lost: its host does not answer", name.c_str());
    case EBADMSG: return fail(NCAST_CORRUPT, "the connection to %s broke: what it sent is not valid", name.c_str());
    default: return fail(NCAST_REMOTE_ERROR, "the connection to %s broke: %s", name.c_str(), text.c_str());
  }
}

}  // namespace narrowcast::channel
