// Messages over one TCP connection. No function blocks. Used by one thread at a time.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "bootstrap/descriptor.h"

namespace narrowcast::bootstrap {

// The numbers are part of the protocol. tcp_messages.h lists them with their payloads.
enum class MessageKind : uint32_t;

// In the byte order of the host: all hosts with supported GPUs are little-endian.
struct MessageHeader {
  MessageKind kind;
  int32_t value;
  uint64_t payload_bytes;
};

struct Message {
  MessageHeader header;
  std::vector<char> payload;
};

// Shared, because one payload may be queued on several connections.
using Payload = std::shared_ptr<const std::vector<char>>;

// Sends small messages without delay, and makes the connection fail when the peer's host has been lost for half a
// minute.
void set_up_socket(int socket);

inline constexpr double longest_silence_seconds = 30;
// Makes the connection fail when the peer's host has not answered for about `seconds`, whether data is under way or
// not. The kernel counts whole seconds; values outside of 1 to 30 become the nearest of these, and a connection without
// data under way fails after two seconds at the earliest.
void limit_silence(int socket, double seconds);

class Connection {
 public:
  // The owner opens it: a non-blocking socket.
  Descriptor socket;
  bool has_events = false;  // set by the owner after poll()

  // The largest payload that the peer may send. A larger one ends the connection.
  void allow_payload(size_t bytes) { allowed_bytes_ = bytes; }

  void queue(MessageKind kind, int32_t value, Payload payload = nullptr);
  // The argument for poll().
  pollfd wanted_events() const {
    return {socket.get(), static_cast<short>(output_.empty() ? POLLIN : POLLIN | POLLOUT), 0};
  }

  // Writes as much as the socket accepts. Returns false if the connection has ended; messages that the peer sent before
  // can still be read.
  bool write_some();

  // Reads at most about a megabyte, to be fair to other connections, and appends the complete messages. Returns false
  // if the connection has ended, after it has appended the messages that arrived before the end.
  bool read_some(std::vector<Message>* messages);

  // Why the connection ended: an errno, EBADMSG if the peer violated the protocol, or 0 if the peer closed it.
  int error() const { return error_; }

 private:
  struct Output {
    MessageHeader header;
    Payload payload;
    size_t sent_bytes = 0;
  };

  std::deque<Output> output_;
  Message input_ = {};
  size_t input_bytes_ = 0;  // bytes of input_ received so far, including the header
  size_t allowed_bytes_ = 0;
  int error_ = 0;
};

}  // namespace narrowcast::bootstrap
