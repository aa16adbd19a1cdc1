#include "bootstrap/tcp_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace narrowcast::bootstrap {
namespace {

constexpr size_t max_bytes_per_turn = size_t{1} << 20;

// Errors are ignored: connections also work without the options.
void set_option(int socket, int level, int option, int value) {
  static_cast<void>(setsockopt(socket, level, option, &value, sizeof value));
}

bool must_wait(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

void set_up_socket(int socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  limit_silence(socket, longest_silence_seconds);
}

void limit_silence(int socket, double seconds) {
  const int limit_seconds = static_cast<int>(std::clamp(seconds, 1.0, longest_silence_seconds));
  // While no data is unacknowledged, the kernel sends probes. With a user timeout, that ends the connection instead of
  // the number of probes without an answer, at the first probe after it.
  const int probe_seconds = std::max(1, limit_seconds / 5);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, probe_seconds);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, probe_seconds);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, limit_seconds * 1000);
}

void Connection::queue(MessageKind kind, int32_t value, Payload payload) {
  const uint64_t bytes = payload == nullptr ? 0 : payload->size();
  output_.push_back({{kind, value, bytes}, std::move(payload)});
}

bool Connection::write_some() {
  while (!output_.empty()) {
    Output& next = output_.front();
    const size_t header_bytes = next.sent_bytes < sizeof next.header ? sizeof next.header - next.sent_bytes : 0;
    const size_t payload_start = next.sent_bytes + header_bytes - sizeof next.header;
    const size_t payload_bytes = next.header.payload_bytes - payload_start;
    iovec parts[2] = {{reinterpret_cast<char*>(&next.header) + sizeof next.header - header_bytes, header_bytes},
                      {nullptr, payload_bytes}};
    if (payload_bytes != 0) parts[1].iov_base = const_cast<char*>(next.payload->data()) + payload_start;
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t sent = sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && must_wait(errno)) return true;
    if (sent < 0) {
      error_ = errno;
      output_.clear();
      return false;
    }
    next.sent_bytes += static_cast<size_t>(sent);
    if (next.sent_bytes == sizeof next.header + next.header.payload_bytes) output_.pop_front();
  }
  return true;
}

bool Connection::read_some(std::vector<Message>* messages) {
  constexpr size_t header_bytes = sizeof(MessageHeader);
  for (size_t turn_bytes = 0; turn_bytes < max_bytes_per_turn;) {
    const bool in_header = input_bytes_ < header_bytes;
    char* target = in_header ? reinterpret_cast<char*>(&input_.header) + input_bytes_
                             : input_.payload.data() + (input_bytes_ - header_bytes);
    const size_t wanted = in_header ? header_bytes - input_bytes_
                                    : std::min(input_.payload.size() + header_bytes - input_bytes_, max_bytes_per_turn);
    const ssize_t received = recv(socket.get(), target, wanted, MSG_DONTWAIT);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0 && must_wait(errno)) return true;
    if (received <= 0) {
      error_ = received < 0 ? errno : 0;
      return false;
    }
    input_bytes_ += static_cast<size_t>(received);
    turn_bytes += static_cast<size_t>(received);
    if (input_bytes_ == header_bytes) {
      if (input_.header.payload_bytes > allowed_bytes_) {
        error_ = EBADMSG;
        return false;
      }
      input_.payload.resize(input_.header.payload_bytes);
    }
    if (input_bytes_ >= header_bytes && input_bytes_ == header_bytes + input_.payload.size()) {
      messages->push_back(std::move(input_));
      input_ = {};
      input_bytes_ = 0;
    }
  }
  return true;
}

}  // namespace narrowcast::bootstrap
