// Lets the two ranks of a communicator agree, without NCCL, to attach before their first common call. A rank's first
// transfer may be its only call, and must not wait for a peer that captures its call or whose communicator does not
// block.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "digest/sha256.h"
#include "nccl/abi/nccl_types.h"

namespace narrowcast::nccl {

// What a rank says about the calls that it is about to make.
enum class Readiness : uint8_t {
  cannot_attach = 1,
  can_attach,      // but these calls are not faster on the engine
  wants_to_attach  // these calls are faster on the engine
};

// The datagram socket of one rank. Its name and the secret in its messages are derived from the communicator's id and
// do not reveal it. Another process can pose as the other rank only if it knows the id and is of the same user.
class PairHandshake {
 public:
  // Called before the communicator is created, so that after the creation it is certain whether the peer has a socket.
  // NULL: the socket could not be created.
  static std::unique_ptr<PairHandshake> create(const UniqueId& id, int rank);
  ~PairHandshake();
  PairHandshake(const PairHandshake&) = delete;
  PairHandshake& operator=(const PairHandshake&) = delete;

  // Sends this rank's readiness and waits for the other's. nullopt: the other rank has no socket, has closed it or is
  // of another user, or is_over() has become true.
  std::optional<Readiness> exchange(Readiness own, const std::function<bool()>& is_over);

 private:
  PairHandshake(int socket, std::string name, const digest::Sha256& secret, int rank)
      : socket_(socket), name_(std::move(name)), secret_(secret), rank_(rank) {}
  enum class Sent { yes, not_now, no_receiver };
  struct Received {
    std::optional<Readiness> readiness;
    bool is_of_other_user = false;
  };
  Sent send(Readiness own) const;
  Received receive(int milliseconds) const;

  int socket_;
  std::string name_;
  digest::Sha256 secret_;
  int rank_;
};

}  // namespace narrowcast::nccl
