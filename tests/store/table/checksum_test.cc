// The checksum of a segment, whatever instructions compute it.
#include "store/file/checksum.h"

#include <random>
#include <vector>

#include "doctest/doctest.h"

#define XXH_INLINE_ALL
#include "xxhash/xxhash.h"

TEST_CASE("checksums are those of XXH3 for every size") {
  std::vector<uint8_t> bytes(5000);
  std::mt19937_64 random(1);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  for (size_t count = 0; count < 4900; ++count) {
    const uint8_t* const begin = bytes.data() + count % 67;
    REQUIRE(narrowcast::store::file::checksum(begin, count) == XXH3_64bits(begin, count));
  }
}
