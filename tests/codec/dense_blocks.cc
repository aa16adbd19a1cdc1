// The block coders of `dense` against each other.
#include <algorithm>
#include <array>
#include <bit>

#include "codec/dense/block.h"
#include "doctest/doctest.h"
#include "patterns.h"

namespace narrowcast::tests {
namespace {

namespace dense = codec::dense;

constexpr const dense::BlockCoder* dense_coders[] = {&dense::reference, &dense::fast};

Bytes encode_dense(const dense::BlockCoder& coder, const dense::ValueType& type, const Bytes& values, Random& random) {
  const Exact from(values, static_cast<size_t>(random.below(17)));
  Guarded payload(static_cast<size_t>(type.block_bytes()), static_cast<size_t>(random.below(17)));
  const size_t bytes = coder.encode(type, from.data(), payload.data());
  REQUIRE(bytes <= payload.size());
  REQUIRE(bytes % 16 == 0);
  REQUIRE(payload.intact());
  return payload.copy(bytes);
}

struct Outcome {
  bool ok;
  Bytes values;  // empty after an error
  bool operator==(const Outcome&) const = default;
};
Outcome decode_dense(const dense::BlockCoder& coder, const dense::ValueType& type, const Bytes& payload,
                     Random& random) {
  const Exact from(payload, static_cast<size_t>(random.below(17)));
  Guarded values(static_cast<size_t>(type.block_bytes()), static_cast<size_t>(random.below(17)));
  const bool ok = coder.decode(type, from.data(), payload.size(), values.data());
  REQUIRE(values.intact());
  return {ok, ok ? values.copy(values.size()) : Bytes{}};
}

// Encodes and decodes with each coder. Returns the payload.
Bytes require_dense_round_trip(const dense::ValueType& type, const Bytes& values, Random& random) {
  const Bytes expected = encode_dense(dense::reference, type, values, random);
  REQUIRE(encode_dense(dense::fast, type, values, random) == expected);
  for (const auto* coder : dense_coders) REQUIRE(decode_dense(*coder, type, expected, random) == Outcome{true, values});
  return expected;
}

void clear_low_bits(const dense::ValueType& type, int count, Bytes& values) {
  for (int i = 0; i < type.block_elems(); ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, values.data() + i * type.value_bytes, static_cast<size_t>(type.value_bytes));
    bits = bits >> count << count;
    std::memcpy(values.data() + i * type.value_bytes, &bits, static_cast<size_t>(type.value_bytes));
  }
}

}  // namespace

TEST_CASE("both coders of dense write the same bytes and read them back, whatever the exponents") {
  const int rounds = sanitized ? 2 : 12;
  for (const NamedType& named : window_types)
    for (size_t pattern = 0; pattern < pattern_names.size(); ++pattern)
      for (int round = 0; round < rounds; ++round) {
        Random random(pattern * 1000 + static_cast<uint64_t>(round));
        INFO(named.name, ", ", pattern_names[pattern], ", round ", round);
        require_dense_round_trip(dense::value_type(named.dtype),
                                 make_block(named.type, static_cast<int>(pattern), random), random);
      }
}

TEST_CASE("dense stores no mantissa bits that are zero in the whole block") {
  for (const NamedType& named : window_types) {
    const dense::ValueType type = dense::value_type(named.dtype);
    Random random(3);
    const Bytes block = make_block(named.type, 15, random);
    for (int trim = 0; trim <= type.mantissa_bits(); ++trim) {
      INFO(named.name, ", ", trim, " bits");
      Bytes values = block;
      clear_low_bits(type, trim, values);
      const Bytes payload = require_dense_round_trip(type, values, random);
      CHECK(payload.size() <= static_cast<size_t>(type.block_elems() * (type.rest_bits() - trim + 3) / 8 + 32));
    }
  }
}

TEST_CASE("each pattern of the narrow types survives dense among ordinary values") {
  for (const NamedType& named : window_types) {
    const dense::ValueType type = dense::value_type(named.dtype);
    if (type.value_bytes > 2) continue;
    const int patterns = 1 << 8 * type.value_bytes, together = sanitized ? 256 : 64;
    Random random(5);
    for (int first = 0; first < patterns; first += together) {
      Bytes values = make_block(named.type, 0, random);
      for (int i = 0; i < together; ++i)
        put_bits(named.type, static_cast<uint64_t>(first + i), values.data(), random.below(type.block_elems()));
      INFO(named.name, ", patterns from ", first);
      require_dense_round_trip(type, values, random);
    }
  }
}

TEST_CASE("dense codes exponents at nearly their entropy") {
  // Exponents below the base halve in number with each step: two bits of entropy. A digit has no fewer.
  Random random(11);
  Bytes values(4096);
  for (int i = 0; i < 2048; ++i)
    put_bits(codec::window::bfloat16,
             bits_of_exponent(codec::window::bfloat16, 130 - std::countr_zero(random.bits() | 1u << 20), random),
             values.data(), i);
  CHECK(require_dense_round_trip(dense::bfloat16, values, random).size() < 2048 * (8 + 2.4) / 8);
}

TEST_CASE("dense gives the exponent 0 the first rank where zeros are common") {
  Random random(12);
  Bytes values = make_block(codec::window::float32, 15, random);
  for (int i = 0; i < 1024; i += 2) put_bits(codec::window::float32, 0, values.data(), i);
  const Bytes payload = require_dense_round_trip(dense::float32, values, random);
  CHECK((payload.back() & dense::zero_first_bit) != 0);
  CHECK(payload.size() < 1024 * (24 + 2.5) / 8);
}

TEST_CASE("a block of float64 with exponents that no position reaches is stored raw, but not because of zeros") {
  Random random(13);
  Bytes values = make_block(codec::window::float64, 6, random);
  for (int i = 0; i < 1024; ++i)
    put_bits(codec::window::float64, bits_of_exponent(codec::window::float64, 1023, random), values.data(), i);
  put_bits(codec::window::float64, 0, values.data(), 7);
  CHECK(require_dense_round_trip(dense::float64, values, random).size() < values.size());
  put_bits(codec::window::float64, bits_of_exponent(codec::window::float64, 1023 - 127, random), values.data(), 8);
  CHECK(require_dense_round_trip(dense::float64, values, random).size() < values.size());
  put_bits(codec::window::float64, bits_of_exponent(codec::window::float64, 1023 - 128, random), values.data(), 8);
  CHECK(require_dense_round_trip(dense::float64, values, random).size() == values.size());
}

TEST_CASE("decoders of dense agree about damaged and truncated payloads") {
  int valid = 0, invalid = 0;
  for (const NamedType& named : window_types) {
    const dense::ValueType type = dense::value_type(named.dtype);
    const auto block_bytes = static_cast<size_t>(type.block_bytes());
    for (int round = 0; round < (sanitized ? 60 : 600); ++round) {
      Random random(static_cast<uint64_t>(round));
      INFO(named.name, ", round ", round);
      Bytes values = make_block(named.type, round % 4 == 0 ? round / 4 % 16 : 0, random);
      if (round % 3 == 0) clear_low_bits(type, random.below(type.rest_bits()), values);
      Bytes payload = encode_dense(dense::reference, type, values, random);
      if (payload.size() == block_bytes) continue;
      const auto size = static_cast<int>(payload.size());
      const int kept = type.rest_bits() - (payload.back() & dense::trim_mask);
      for (int damage = random.below(4); damage >= 0; --damage) {
        // In the header, among stream and far positions, or anywhere.
        const int stream = std::min(type.stream_offset(kept), size - 1);
        const int at = random.chance(0.4)   ? size - 1 - random.below(type.header_bytes() + 4)
                       : random.chance(0.7) ? stream + random.below(size - stream)
                                            : random.below(size);
        payload[static_cast<size_t>(at)] ^= static_cast<uint8_t>(1 << random.below(8));
      }
      if (random.chance(0.1)) payload.resize(static_cast<size_t>(1 + random.below(size / 16)) * 16);
      const Outcome expected = decode_dense(dense::reference, type, payload, random);
      REQUIRE(decode_dense(dense::fast, type, payload, random) == expected);
      ++(expected.ok ? valid : invalid);
    }
  }
  CHECK(valid > 100 / (sanitized ? 10 : 1));
  CHECK(invalid > 100 / (sanitized ? 10 : 1));
}

TEST_CASE("dense rejects a group with more than 512 escapes") {
  // Group 0 with code 3: digit 3 is rank 3 with no ones. Its digits are 0 but for the first `escapes` values.
  for (const int escapes : {512, 513}) {
    const dense::PayloadHeader header{8, false, {{dense::code_of(3), 3, 2, 127}, {dense::code_of(3), 3, 2, 127}}};
    const auto bytes = static_cast<size_t>(dense::bfloat16.payload_bytes(8, escapes, 0));
    Bytes payload(bytes);
    for (int i = 0; i < escapes; ++i)
      for (int plane = 0; plane < 2; ++plane)
        payload[static_cast<size_t>(dense::bfloat16.digit_offset(8) + plane * dense::plane_bytes + i / 8)] |=
            static_cast<uint8_t>(1 << i % 8);
    write_payload_header(dense::bfloat16, header, payload.data(), bytes);
    Random random(1);
    for (const auto* coder : dense_coders)
      CHECK(decode_dense(*coder, dense::bfloat16, payload, random).ok == (escapes == 512));
  }
}

}  // namespace narrowcast::tests
