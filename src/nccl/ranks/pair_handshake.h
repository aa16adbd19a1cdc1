// Where the two ranks of a communicator meet before the first call that both have a part in, beside NCCL: a rank may be alone
// in its first transfer, and is not to wait for one that makes it in a capture, or with a communicator that does not block.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "nccl/abi/nccl_types.h"

namespace narrowcast::nccl {

// What a rank says of the calls that it is about to make.
enum class Wish : uint8_t {
  none = 1,  // it cannot attach before them
  able,      // it can, and they do not gain by it
  eager      // they do
};

// One rank's end: a socket whose name follows from the communicator's id. Whoever has that id may speak for the other rank.
class Meeting {
 public:
  // Before the communicator is made: once it is, each rank has its end, or has none. NULL: there is no socket to be had.
  static std::unique_ptr<Meeting> create(const UniqueId& id, int rank);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  // Tells the other rank and waits for what that one says. NULL: it has no end, or none any more, or is_over() has become true.
  std::optional<Wish> exchange(Wish own, const std::function<bool()>& is_over);

 private:
  Meeting(int socket, uint64_t name, uint64_t secret, int rank)
      : socket_(socket), name_(name), secret_(secret), rank_(rank) {}
  enum class Telling { told, not_now, nobody_there };
  Telling tell(Wish own) const;
  std::optional<Wish> heard(int milliseconds) const;

  int socket_;
  uint64_t name_, secret_;
  int rank_;
};

}  // namespace narrowcast::nccl
