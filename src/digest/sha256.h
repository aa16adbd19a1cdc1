// SHA-256, for names that other users can read and for secrets.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace narrowcast::digest {

using Sha256 = std::array<uint8_t, 32>;

// The digest of bytes for one purpose. A digest reveals nothing about the bytes, unless they can be guessed, or about
// their digests in other domains. The domain contains no zero byte.
Sha256 sha256(std::string_view domain, std::string_view bytes);

// The first `digits` hexadecimal digits.
std::string hex(const Sha256& digest, size_t digits = 64);

}  // namespace narrowcast::digest
