#include "digest/sha256.h"

#include "picosha2/picosha2.h"

namespace narrowcast::digest {

Sha256 sha256(std::string_view domain, std::string_view bytes) {
  // The zero byte ends the domain: without it, domain "a" with bytes "b" would be domain "ab" without bytes.
  constexpr char end = '\0';
  picosha2::hash256_one_by_one hash;
  hash.process(domain.begin(), domain.end());
  hash.process(&end, &end + 1);
  hash.process(bytes.begin(), bytes.end());
  hash.finish();
  Sha256 digest;
  hash.get_hash_bytes(digest.begin(), digest.end());
  return digest;
}

std::string hex(const Sha256& digest, size_t digits) {
  constexpr char names[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : digest) text += {names[byte >> 4], names[byte & 15]};
  return text.substr(0, digits);
}

}  // namespace narrowcast::digest
