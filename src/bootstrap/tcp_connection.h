// Messages over one TCP connection, without ever blocking. One thread at a time.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "bootstrap/descriptor.h"

namespace narrowcast::bootstrap {

// What a message is about; the numbers cross the wire. tcp_messages.h says what each carries.
enum class MessageKind : uint32_t;

// In the byte order of the hosts: all that have GPUs are little-endian.
struct MessageHeader {
  MessageKind kind;
  int32_t value;
  uint64_t payload_bytes;
};

struct Message {
  MessageHeader header;
  std::vector<char> payload;
};

// One payload may be on its way to many.
using Payload = std::shared_ptr<const std::vector<char>>;

// Settings of a connection to a peer: no delay of small messages, and an end when the peer's host is lost.
void set_up_socket(int socket);

class Connection {
 public:
  // To be opened by the owner: a socket that does not block.
  Descriptor socket;
  bool has_events = false;  // for the owner's use, with poll()

  // A longer message of the peer ends the connection.
  void allow_payload(size_t bytes) { allowed_bytes_ = bytes; }

  void queue(MessageKind kind, int32_t value, Payload payload = nullptr);
  bool has_output() const { return !output_.empty(); }
  // What to poll() for.
  pollfd wanted_events() const {
    return {socket.get(), static_cast<short>(output_.empty() ? POLLIN : POLLIN | POLLOUT), 0};
  }

  // Writes what the socket takes. False when the connection is over; what the peer sent before may still be read.
  bool write_some();

  // Reads what has come, up to about a megabyte, so that others get their turn, and appends the messages that are
  // complete. False when the connection is over; the messages that came before the end are there.
  bool read_some(std::vector<Message>* messages);

  // Why it is over: an errno, EBADMSG when the peer broke the rules, or 0 when the peer closed it.
  int error() const { return error_; }

 private:
  struct Output {
    MessageHeader header;
    Payload payload;
    size_t sent_bytes = 0;
  };

  std::deque<Output> output_;
  Message input_ = {};
  size_t input_bytes_ = 0;  // received of input_, header included
  size_t allowed_bytes_ = 0;
  int error_ = 0;
};

}  // namespace narrowcast::bootstrap
