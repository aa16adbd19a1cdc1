#include "bootstrap/proof.h"

#include <string>

namespace narrowcast::bootstrap {

Proof prove(std::string_view domain, const WorldId& secret, std::string_view claim) {
  return digest::sha256(domain, std::string(bytes_of(secret)).append(claim));
}

bool is_same(const Proof& a, const Proof& b) {
  uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<uint8_t>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace narrowcast::bootstrap
