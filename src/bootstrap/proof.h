// Proofs that both ends of a connection know the secret of a world, without sending it: each sends a random challenge,
// and answers that of the other with a digest of the secret, the challenges and what it claims.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "bootstrap/world_id.h"
#include "digest/sha256.h"

namespace narrowcast::bootstrap {

using Challenge = std::array<uint64_t, 2>;  // from random_bytes()
using Proof = digest::Sha256;

// domain: what is proved, and by which end. claim: contains the challenges.
Proof prove(std::string_view domain, const WorldId& secret, std::string_view claim);

// In a time that does not depend on the content.
bool is_same(const Proof& a, const Proof& b);

template <typename Content>
std::string_view bytes_of(const Content& content) {
  return {reinterpret_cast<const char*>(&content), sizeof content};
}

}  // namespace narrowcast::bootstrap
