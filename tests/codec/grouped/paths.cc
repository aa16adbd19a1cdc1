// The two paths of the host.
#include "codec/grouped/blocks.h"
#include "doctest/doctest.h"

namespace narrowcast::tests {

TEST_CASE("the fast path of grouped codecs writes the bytes and the values of the reference") {
  Random random(3);
  for (const ncast_codec codec : grouped_codecs()) {
    CAPTURE(codec::describe(codec));
    for (const ncast_dtype dtype : grouped_types) {
      CAPTURE(std::string(ncast_dtype_name(dtype)));
      for (size_t pattern = 0; pattern < std::size(grouped_patterns); ++pattern) {
        CAPTURE(std::string(grouped_patterns[pattern]));
        GroupedBlock block = grouped_block(dtype, pattern, random);
        const codec::BlockContext context{random.bits() >> 20, static_cast<uint32_t>(random.bits()), 1, 2};
        const Bytes expected = block.encoded(codec, context);
        Bytes payload(block.type.block_bytes, 0x5c);
        payload.resize(block.host().fast.encode(block.type, context, block.values.data(), payload.data()));
        REQUIRE(payload == expected);
        // As it is, and with one damaged byte.
        for (int damaged = 0; damaged < 2; ++damaged) {
          const size_t at = payload.size() - 1 - static_cast<size_t>(random.below(damaged != 0 ? 200 : 1));
          if (damaged != 0) payload[at] = static_cast<uint8_t>(random.bits());
          const Bytes values = block.decoded(codec, payload);
          Bytes found(block.type.block_bytes);
          const bool ok = block.host().fast.decode(block.type, payload.data(), payload.size(), found.data());
          REQUIRE(ok == !values.empty());
          if (ok) REQUIRE(found == values);
        }
      }
    }
  }
}

}  // namespace narrowcast::tests
