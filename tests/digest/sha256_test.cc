#include "digest/sha256.h"

#include <string>

#include "doctest/doctest.h"

namespace narrowcast::digest {
namespace {

// Computed by sha256sum.
TEST_CASE("a digest is the SHA-256 of the domain, a zero byte and the bytes") {
  CHECK(hex(sha256("", "")) == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d");
  CHECK(hex(sha256("name", "abc")) == "53c98b2cbe4c529278e0da3a231bfb1c3b940aeed2c69915c0487fe3123fcc6b");
  CHECK(hex(sha256("name", std::string(1000, 'a'))) ==
        "db701a12ada2cf0b6f8449a48c381b1792d2ca7e31c5c87c4399496d94f24635");
  // 54 and 55 bytes after the zero byte: the padding needs no further block, and one.
  CHECK(hex(sha256("", std::string(54, 'a'))) == "745b56dbbdcd3981041d8580641f8112b26b8df7e50c4fdb649da06fdaaff25d");
  CHECK(hex(sha256("", std::string(55, 'a'))) == "2f96780fb415b287dd95897a04ef96fde6a5f5b0c771d0a1175543bc3250718e");
}

TEST_CASE("domains separate digests") {
  CHECK(sha256("a", "b") != sha256("ab", ""));
  CHECK(sha256("a", "b") != sha256("", "ab"));
  CHECK(sha256("name", "b") != sha256("secret", "b"));
}

TEST_CASE("hexadecimal digits keep leading zeros and can be limited") {
  CHECK(hex({0x01, 0xab}, 6) == "01ab00");
  CHECK(hex({}).size() == 64);
}

}  // namespace
}  // namespace narrowcast::digest
