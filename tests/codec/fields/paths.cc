// The two paths of the host for `abs` and `rate`.
#include "codec/fields/blocks.h"
#include "doctest/doctest.h"

namespace narrowcast::tests {

TEST_CASE(
    "the fast paths of abs and rate write the bytes and the values of the references, damaged payloads included") {
  Random random(14);
  int refused = 0;
  for (const std::string codec : {"abs:bound=0.01", "abs:bound=1", "rate", "rate:bits=8", "rate:bits=11",
                                  "rate:bits=21", "rate:bits=26", "rate:bits=31"})
    for (const ncast_dtype dtype : field_types)
      for (const char* const pattern : field_patterns) {
        CAPTURE(codec);
        CAPTURE(std::string(ncast_dtype_name(dtype)));
        CAPTURE(std::string(pattern));
        FieldBlock block(dtype, codec);
        fill_field(block, pattern, codec == "abs:bound=0.01" ? 0.01 : 1, random);
        Bytes payload = block.encoded();
        REQUIRE(block.encoded(block.host().fast) == payload);
        for (int damage = 0; damage < 3; ++damage) {
          // As it is, with some other bytes, and with any.
          for (size_t i = 0; i < payload.size(); ++i)
            if (damage == 2 || (damage == 1 && random.chance(0.02))) payload[i] = static_cast<uint8_t>(random.bits());
          const Bytes values = block.decoded(block.host().reference, payload);
          REQUIRE(block.decoded(block.host().fast, payload) == values);
          refused += values.empty() ? 1 : 0;
        }
        payload.resize(payload.size() - 16);
        const Bytes values = block.decoded(block.host().reference, payload);
        REQUIRE(block.decoded(block.host().fast, payload) == values);
        CHECK(values.empty());
      }
  CHECK(refused > 20);
}

}  // namespace narrowcast::tests
