// Every bit pattern of the narrow types, and the telling ones of the wide.
#include <cmath>
#include <limits>

#include "codec/window/vectorized.h"
#include "doctest/doctest.h"
#include "patterns.h"

namespace narrowcast::tests {
namespace {

using codec::window::BlockCoder;

bool round_trips(const BlockCoder& coder, const ValueType& type, const Bytes& values, Bytes& payload, Bytes& back) {
  const size_t bytes = coder.encode(type, values.data(), payload.data());
  return coder.decode(type, payload.data(), bytes, back.data()) && back == values;
}

// Values of ordinary sizes: exponents in a bell below `top`.
Bytes ordinary_block(const ValueType& type, int top, Random& random) {
  Bytes block(static_cast<size_t>(type.block_bytes()));
  for (int i = 0; i < type.block_elems(); ++i)
    put_bits(type, bits_of_exponent(type, std::max(top - std::countr_zero(random.bits() | 256), 1), random),
             block.data(), i);
  return block;
}

const BlockCoder& fastest() { return codec::window::vector_paths().back().coder; }

}  // namespace

TEST_CASE("each pattern of the narrow types survives among ordinary values, in every lane") {
  for (const NamedType& named : window_types) {
    const ValueType& type = named.type;
    if (type.value_bytes > 2) continue;
    const int patterns = 1 << 8 * type.value_bytes, n = type.block_elems(), together = 32;
    Bytes payload(static_cast<size_t>(type.block_bytes())), back(payload.size());
    Random random(5);
    const int turns = sanitized && type.value_bytes == 2 ? 1 : 4;
    for (int turn = 0; turn < turns; ++turn)
      for (int first = 0; first < patterns; first += together) {
        Bytes values = ordinary_block(type, (1 << type.exponent_bits) * (turn + 2) / 6, random);
        // One to a lane, further along each time.
        for (int i = 0; i < together; ++i) {
          const int run = type.vector_elems(), lane = (i + first / together) % 32, vectors = n / (32 * run);
          const int index = (random.below(vectors) * 32 + lane) * run + random.below(run);
          put_bits(type, static_cast<uint64_t>(first + i), values.data(), index);
        }
        INFO(named.name, ", patterns from ", first, ", turn ", turn);
        REQUIRE(round_trips(fastest(), type, values, payload, back));
        const Bytes from_fastest(payload);
        if (turn == 0) {
          REQUIRE(round_trips(codec::window::reference, type, values, payload, back));
          REQUIRE(payload == from_fastest);
        }
      }
  }
}

TEST_CASE("each pattern of the narrow types survives in a block of its own") {
  for (const NamedType& named : window_types) {
    const ValueType& type = named.type;
    if (type.value_bytes > 2) continue;
    const int patterns = 1 << 8 * type.value_bytes;
    Bytes values(static_cast<size_t>(type.block_bytes())), payload(values.size()), back(values.size());
    const int step = sanitized ? 13 : 1;
    for (int pattern = 0; pattern < patterns; pattern += step) {
      for (int i = 0; i < type.block_elems(); ++i) put_bits(type, static_cast<uint64_t>(pattern), values.data(), i);
      INFO(named.name, ", pattern ", pattern);
      REQUIRE(round_trips(fastest(), type, values, payload, back));
      if (pattern % 8 != 0 && type.value_bytes == 2) continue;
      const Bytes from_fastest(payload);
      REQUIRE(round_trips(codec::window::reference, type, values, payload, back));
      REQUIRE(payload == from_fastest);
    }
  }
}

TEST_CASE("all patterns of a 16-bit type in the order of their bits survive, on every path") {
  for (const NamedType& named : window_types) {
    const ValueType& type = named.type;
    if (type.value_bytes != 2) continue;
    Bytes values(static_cast<size_t>(type.block_bytes())), payload(values.size()), back(values.size());
    for (int stride : {1, 3, 257, 4099})
      for (int first = 0; first < 1 << 16; first += type.block_elems()) {
        for (int i = 0; i < type.block_elems(); ++i)
          put_bits(type, static_cast<uint64_t>((first + i) * stride), values.data(), i);
        for (const auto& path : codec::window::vector_paths())
          REQUIRE(round_trips(path.coder, type, values, payload, back));
      }
  }
}

TEST_CASE("signed zeros, denormals, infinities and NaN payloads of the wide types survive in every lane") {
  for (const NamedType& named : window_types) {
    const ValueType& type = named.type;
    if (type.value_bytes < 4) continue;
    const int total = 8 * type.value_bytes, mantissa = total - 1 - type.exponent_bits;
    const uint64_t sign = uint64_t{1} << (total - 1),
                   infinity = (uint64_t{1} << (total - 1)) - (uint64_t{1} << mantissa);
    const uint64_t quiet = uint64_t{1} << (mantissa - 1);
    std::vector<uint64_t> special = {0,
                                     sign,
                                     1,
                                     sign | 1,
                                     quiet,
                                     infinity,
                                     sign | infinity,
                                     infinity | 1,
                                     infinity | quiet,
                                     ~uint64_t{0},
                                     infinity - 1,
                                     infinity | (quiet - 1),
                                     sign | infinity | 0x1234,
                                     uint64_t{1} << mantissa,
                                     (uint64_t{1} << mantissa) - 1};
    // Each bit of a NaN's payload, and each bit alone.
    for (int bit = 0; bit < mantissa; ++bit) special.push_back(infinity | uint64_t{1} << bit);
    for (int bit = 0; bit < total; ++bit) special.push_back(uint64_t{1} << bit);
    Bytes payload(static_cast<size_t>(type.block_bytes())), back(payload.size());
    Random random(9);
    for (size_t shift = 0; shift < 128; ++shift) {
      Bytes values = ordinary_block(type, 1 << (type.exponent_bits - 1), random);
      for (size_t i = 0; i < special.size(); ++i)
        put_bits(type, special[i], values.data(), static_cast<int>((i * 37 + shift * 8 + shift / 16) % 1024));
      CAPTURE(named.name);
      CAPTURE(shift);
      for (const auto& path : codec::window::vector_paths())
        REQUIRE(round_trips(path.coder, type, values, payload, back));
      const Bytes from_path(payload);
      REQUIRE(round_trips(codec::window::reference, type, values, payload, back));
      REQUIRE(payload == from_path);
    }
    // And alone.
    for (const uint64_t bits : special) {
      Bytes values(static_cast<size_t>(type.block_bytes()));
      for (int i = 0; i < type.block_elems(); ++i) put_bits(type, bits, values.data(), i);
      for (const auto& path : codec::window::vector_paths())
        REQUIRE(round_trips(path.coder, type, values, payload, back));
    }
  }
}

TEST_CASE("every exponent of float64 survives beside every kind of window") {
  const ValueType type = codec::window::float64;
  Bytes payload(static_cast<size_t>(type.block_bytes())), back(payload.size());
  Random random(13);
  for (int base = 0; base < 2048; base += sanitized ? 101 : 11) {
    Bytes values(static_cast<size_t>(type.block_bytes()));
    for (int i = 0; i < type.block_elems(); ++i)
      put_bits(type, bits_of_exponent(type, std::min(base + random.below(4), 2047), random), values.data(), i);
    for (int exponent = 0; exponent < 2048; exponent += 64)
      put_bits(type, bits_of_exponent(type, (exponent + base) % 2048, random), values.data(), exponent / 2 + 17);
    CAPTURE(base);
    for (const auto& path : codec::window::vector_paths())
      REQUIRE(round_trips(path.coder, type, values, payload, back));
  }
}

}  // namespace narrowcast::tests
