// Lets the two ranks of a communicator agree, without NCCL, to attach before their first common call. A rank's first
// transfer may be its only call, and must not wait for a peer that captures its call or whose communicator does not
// block.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "nccl/abi/nccl_types.h"

namespace narrowcast::nccl {

// What a rank says about the calls that it is about to make.
enum class Readiness : uint8_t {
  cannot_attach = 1,
  can_attach,      // but these calls are not faster on the engine
  wants_to_attach  // these calls are faster on the engine
};

// The datagram socket of one rank. Its name is derived from the communicator's id, so anyone who knows the id can pose
// as the other rank.
class PairHandshake {
 public:
  // Called before the communicator is created, so that after the creation it is certain whether the peer has a socket.
  // NULL: the socket could not be created.
  static std::unique_ptr<PairHandshake> create(const UniqueId& id, int rank);
  ~PairHandshake();
  PairHandshake(const PairHandshake&) = delete;
  PairHandshake& operator=(const PairHandshake&) = delete;

  // Sends this rank's readiness and waits for the other's. nullopt: the other rank has no socket, has closed it, or
  // is_over() has become true.
  std::optional<Readiness> exchange(Readiness own, const std::function<bool()>& is_over);

 private:
  PairHandshake(int socket, uint64_t name, uint64_t secret, int rank)
      : socket_(socket), name_(name), secret_(secret), rank_(rank) {}
  enum class Sent { yes, not_now, no_receiver };
  Sent send(Readiness own) const;
  std::optional<Readiness> receive(int milliseconds) const;

  int socket_;
  uint64_t name_, secret_;
  int rank_;
};

}  // namespace narrowcast::nccl
