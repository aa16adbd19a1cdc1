// The connection to a rank on another host: bytes in order, in each direction.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "narrowcast/types.h"

namespace narrowcast::channel {

// One thread sends, one receives. Functions return 0, or why the stream has ended: an errno, EBADMSG if what came is
// not valid.
class Stream {
 public:
  static constexpr int closed = -1;  // what receiving functions return if the peer has ended the stream

  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  virtual ~Stream() = default;

  // Sends all parts, and changes them.
  virtual int send(std::span<iovec> parts) = 0;
  // Receives at least one byte. For a thread that must not be late: it does not sleep at first.
  virtual int receive(std::span<iovec> parts, size_t* bytes) = 0;
  virtual int receive_all(void* to, size_t bytes) = 0;
  // Ends both directions at both ends: what was sent still arrives. Any thread.
  virtual void shut_down() = 0;
  // What an errno that these functions returned means.
  virtual std::string describe(int error) const = 0;
};

using Streams = std::vector<std::unique_ptr<Stream>>;  // by rank

// Removes the first `bytes` bytes, at most all, from the parts of a message.
void skip(std::span<iovec>* parts, size_t bytes);

// Fails with the reason for which the stream to the rank `name` has ended. error: 0 if the peer closed it. text: what
// Stream::describe() says. Returns REMOTE_ERROR, or CORRUPT.
ncast_status fail_of_connection(const std::string& name, int error, const std::string& text);

}  // namespace narrowcast::channel
