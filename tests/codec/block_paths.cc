// The block coders against each other: every vector path and the reference.
#include <array>
#include <bit>
#include <string>

#include "codec/window/vectorized.h"
#include "doctest/doctest.h"
#include "patterns.h"

namespace narrowcast::tests {
namespace {

using codec::window::BlockCoder;
using codec::window::reference;
using codec::window::vector_paths;

Bytes encode_guarded(const BlockCoder& coder, const ValueType& type, const Bytes& values, size_t from_offset,
                     size_t to_offset) {
  const Exact from(values, from_offset);
  Guarded payload(static_cast<size_t>(type.block_bytes()), to_offset);
  const size_t bytes = coder.encode(type, from.data(), payload.data());
  REQUIRE(bytes <= payload.size());
  REQUIRE(payload.intact());
  return payload.copy(bytes);
}

struct Decoded {
  bool ok;
  Bytes values;  // empty after an error
  bool operator==(const Decoded&) const = default;
};
Decoded decode_guarded(const BlockCoder& coder, const ValueType& type, const Bytes& payload, size_t from_offset,
                       size_t to_offset) {
  const Exact from(payload, from_offset);
  Guarded values(static_cast<size_t>(type.block_bytes()), to_offset);
  const bool ok = coder.decode(type, from.data(), payload.size(), values.data());
  REQUIRE(values.intact());
  return {ok, ok ? values.copy(values.size()) : Bytes{}};
}

// Encodes on every path, requires the reference's bytes, decodes on every path, requires the values.
void require_round_trip(const ValueType& type, const Bytes& values, Random& random) {
  const Bytes expected = encode_guarded(reference, type, values, 0, 0);
  REQUIRE(expected.size() % 16 == 0);
  REQUIRE(decode_guarded(reference, type, expected, 0, 0) == Decoded{true, values});
  for (const auto& path : vector_paths()) {
    INFO("path ", path.name);
    const auto offset = [&] { return static_cast<size_t>(random.below(17)); };
    REQUIRE(encode_guarded(path.coder, type, values, offset(), offset()) == expected);
    REQUIRE(decode_guarded(path.coder, type, expected, offset(), offset()) == Decoded{true, values});
  }
}

}  // namespace

TEST_CASE("every vector path writes the reference's bytes and reads them back, whatever the exponents") {
  const int rounds = sanitized ? 4 : 40;
  for (const NamedType& named : window_types)
    for (size_t pattern = 0; pattern < pattern_names.size(); ++pattern)
      for (int round = 0; round < rounds; ++round) {
        const uint64_t seed = pattern * 1000 + static_cast<uint64_t>(round);
        INFO(named.name, ", ", pattern_names[pattern], ", seed ", seed);
        Random random(seed);
        require_round_trip(named.type, make_block(named.type, static_cast<int>(pattern), random), random);
      }
}

TEST_CASE("blocks of random bits round-trip on every path") {
  for (const NamedType& named : window_types)
    for (uint64_t seed = 0; seed < 8; ++seed) {
      INFO(named.name, ", seed ", seed);
      Random random(seed);
      Bytes block(static_cast<size_t>(named.type.block_bytes()));
      for (uint8_t& byte : block) byte = static_cast<uint8_t>(random.bits());
      require_round_trip(named.type, block, random);
    }
}

TEST_CASE("a window of every width is chosen by some block of every type that has it") {
  for (const NamedType& named : window_types) {
    const ValueType& type = named.type;
    std::array<int, 6> seen{};
    Random random(7);
    for (int step = 1; step <= 41; ++step) {
      const int spread = step <= 40 ? step : 1 << type.exponent_bits;
      Bytes block(static_cast<size_t>(type.block_bytes()));
      for (int i = 0; i < type.block_elems(); ++i)
        put_bits(type, bits_of_exponent(type, random.below(std::min(spread, 1 << type.exponent_bits)), random),
                 block.data(), i);
      const Bytes payload = encode_guarded(reference, type, block, 0, 0);
      require_round_trip(type, block, random);
      ++seen[payload.size() == block.size() ? 0 : payload[payload.size() - 4] & 7u];
    }
    // A width whose codes take as many bits as the exponent itself wins nothing.
    for (int width = 0; width <= std::min(type.max_width(), type.exponent_bits - 1); ++width) {
      CAPTURE(named.name);
      CAPTURE(width);
      CHECK(seen[static_cast<size_t>(width)] > 0);
    }
  }
}

TEST_CASE("the vectorized coder is the best path of this machine") {
  REQUIRE(!vector_paths().empty());
  CHECK(std::string(vector_paths().front().name) == "baseline");
  const ValueType type = codec::window::bfloat16;
  Random random(1);
  const Bytes block = make_block(type, 0, random);
  CHECK(encode_guarded(codec::window::vectorized, type, block, 0, 0) == encode_guarded(reference, type, block, 0, 0));
}

namespace {

// Damage of every kind that a decoder has to look at, most of it where it matters: the header word, tokens, codes.
void damage(const ValueType& type, Bytes& payload, Random& random) {
  const auto flip = [&](size_t at) { payload[at] ^= static_cast<uint8_t>(1 << random.below(8)); };
  const auto below = [&](size_t bound) { return static_cast<size_t>(random.below(static_cast<int>(bound))); };
  switch (random.below(8)) {
    case 0: flip(payload.size() - 1 - below(4)); break;
    case 1: flip(payload.size() - 1 - below(64)); break;
    case 2: flip(std::min(payload.size() - 1, static_cast<size_t>(type.code_offset()) + below(payload.size()))); break;
    case 3: flip(below(payload.size())); break;
    case 4: payload.resize(16 * (1 + below(payload.size() / 16))); break;
    case 5: payload.resize(below(payload.size() + 1)); break;
    case 6:
      if (payload.size() + 16 <= static_cast<size_t>(type.block_bytes()))
        payload.insert(payload.begin() + static_cast<std::ptrdiff_t>(below(payload.size())), 16, 0xff);
      break;
    default: {
      const uint32_t header = static_cast<uint32_t>(random.bits());
      if (payload.size() >= 4) std::memcpy(payload.data() + payload.size() - 4, &header, 4);
    }
  }
}

}  // namespace

TEST_CASE("all decoders give the same answer to a damaged block, and write nothing outside the values") {
  const int rounds = sanitized ? 60 : 600;
  int accepted = 0, refused = 0;
  for (const NamedType& named : window_types)
    for (int round = 0; round < rounds; ++round) {
      const auto seed = static_cast<uint64_t>(round);
      INFO(named.name, ", seed ", seed);
      Random random(seed);
      const Bytes values = make_block(named.type, random.below(static_cast<int>(pattern_names.size())), random);
      Bytes payload = encode_guarded(reference, named.type, values, 0, 0);
      for (int times = 1 + random.below(3); times > 0 && payload.size() > 64; --times)
        damage(named.type, payload, random);
      const Decoded expected = decode_guarded(reference, named.type, payload, 0, 0);
      ++(expected.ok ? accepted : refused);
      for (const auto& path : vector_paths()) {
        INFO("path ", path.name);
        REQUIRE(decode_guarded(path.coder, named.type, payload, 3, 5) == expected);
      }
    }
  CHECK(accepted > rounds / 10);
  CHECK(refused > rounds / 10);
}

TEST_CASE("all decoders give the same answer to random bytes under a plausible header word") {
  const int rounds = sanitized ? 100 : 1000;
  for (const NamedType& named : window_types)
    for (int round = 0; round < rounds; ++round) {
      const auto seed = static_cast<uint64_t>(round);
      INFO(named.name, ", seed ", seed);
      Random random(seed);
      const ValueType& type = named.type;
      const int width = 1 + random.below(type.max_width());
      const int kept = std::array{0, 8, 11, 24}[static_cast<size_t>(round % 4)];
      const ValueType stored = type.can_keep(kept) ? type.trimmed(kept) : type;
      Bytes payload(static_cast<size_t>(type.block_bytes()) - 16 * (1 + static_cast<size_t>(random.below(32))));
      const uint8_t mask = random.chance(0.5) ? 0xff : 0x11;
      for (uint8_t& byte : payload) byte = static_cast<uint8_t>(random.bits()) & mask;
      // Count what the codes hold, so that the check of the count is passed and the tokens are read.
      int escapes = 0;
      Bytes section(payload.begin() + stored.code_offset(), payload.end());
      if (static_cast<int>(payload.size()) >= stored.escape_offset(width)) {
        const int escape_code = (1 << width) - 1;
        for (int group = 0; group < type.groups(); ++group)
          for (int at = 0; at < 128; ++at)
            for (int field = 0; field < 8 / width * width; ++field) {
              const int row = field / (8 / width), shift = field % (8 / width) * width;
              escapes += (section[static_cast<size_t>((group * width + row) * 128 + at)] >> shift & escape_code) ==
                         escape_code;
            }
      }
      const uint32_t header = static_cast<uint32_t>(width) |
                              static_cast<uint32_t>(random.below((1 << type.exponent_bits) - (1 << width) + 1)) << 3 |
                              static_cast<uint32_t>(std::min(escapes + random.below(2), type.block_elems())) << 14 |
                              (type.can_keep(kept) ? static_cast<uint32_t>(kept) << 27 : 0);
      std::memcpy(payload.data() + payload.size() - 4, &header, 4);
      const Decoded expected = decode_guarded(reference, type, payload, 0, 0);
      for (const auto& path : vector_paths()) {
        INFO("path ", path.name);
        REQUIRE(decode_guarded(path.coder, type, payload, 1, 2) == expected);
      }
    }
}

}  // namespace narrowcast::tests
