// Blocks that no encoder of ours writes but that the specification allows: any base, any width, values kept out of line
// for no reason, noise in the padding. Decoders have to read all of it.
#include <array>
#include <map>

#include "codec/window/vectorized.h"
#include "doctest/doctest.h"
#include "patterns.h"

namespace narrowcast::tests {
namespace {

using codec::window::group_elems;

// docs/format/window.md, read once more: the index of the value that (lane, group, byte, word) stands for.
int value_at(const ValueType& type, int lane, int group, int byte, int word) {
  const int j = 4 * word + byte, run = 16 / type.value_bytes;
  return group_elems * group + 32 * run * (j / run) + run * lane + j % run;
}

// Packs eight fields, those of the words 0..7 of one byte, into `width` bytes.
std::array<uint8_t, 5> pack_fields(int width, const std::array<int, 8>& fields) {
  std::array<uint8_t, 5> bytes{};
  const int whole = 8 / width, spare = 8 % width;
  uint32_t leftover = 0;
  for (int word = whole * width; word < 8; ++word)
    leftover |= static_cast<uint32_t>(fields[static_cast<size_t>(word)]) << (word - whole * width) * width;
  for (int row = 0; row < width; ++row) {
    int bits = static_cast<int>(leftover >> row * spare & ((1u << spare) - 1)) << whole * width;
    for (int i = 0; i < whole; ++i) bits |= fields[static_cast<size_t>(row * whole + i)] << i * width;
    bytes[static_cast<size_t>(row)] = static_cast<uint8_t>(bits);
  }
  return bytes;
}

struct ForeignBlock {
  Bytes payload;
  Bytes values;
};

// kept: bits of sign and mantissa; 0 if all. escape_share: of the values; too many of them make the payload exceed the
// block, and the result is then empty.
ForeignBlock make_foreign_block(const ValueType& whole, int kept, int width, int base, double escape_share,
                                bool far_only, Random& random) {
  const ValueType type = kept == 0 ? whole : whole.trimmed(kept);
  const int mantissa = 8 * type.value_bytes - 1 - type.exponent_bits, trim = kept == 0 ? 0 : mantissa + 1 - kept;
  const int n = type.block_elems(), escape_code = (1 << width) - 1, exponents = 1 << type.exponent_bits;
  ForeignBlock made{Bytes(2 * static_cast<size_t>(type.block_bytes())), Bytes(static_cast<size_t>(type.block_bytes()))};
  uint8_t* payload = made.payload.data();
  std::vector<int> tokens, far;
  for (int lane = 0; lane < 32; ++lane)
    for (int group = 0; group < type.groups(); ++group)
      for (int byte = 0; byte < 4; ++byte) {
        std::array<int, 8> codes, rests;
        for (int word = 0; word < 8; ++word) {
          const int index = value_at(type, lane, group, byte, word);
          int code = random.below(escape_code), exponent = base + code;
          if (random.chance(escape_share)) {
            code = escape_code;
            const int token = far_only ? 15 : random.below(16);
            tokens.push_back(token);
            if (token < 10) exponent = base - 10 + token;
            if (token >= 10 && token < 14) exponent = base + escape_code + token - 10;
            if (token == 14) exponent = 0;
            if (token == 15) {
              far.push_back(exponent = random.below(exponents));
              // Bits of a far exponent above those of the type mean nothing.
              far.back() |= static_cast<int>(random.bits()) << type.exponent_bits;
            }
          }
          const uint64_t bits = without_low_bits(
              type, bits_of_exponent(type, (exponent + exponents) % exponents, random), mantissa - trim);
          put_bits(type, bits, made.values.data(), index);
          const uint64_t sign = bits >> (8 * type.value_bytes - 1);
          uint64_t rest = (sign << mantissa | (bits & ((uint64_t{1} << mantissa) - 1))) >> trim;
          std::memcpy(payload + index * type.tail_bytes, &rest, static_cast<size_t>(type.tail_bytes));
          rest >>= 8 * type.tail_bytes;
          if (type.rest_bytes != 0) payload[type.rest_byte_offset() + index] = static_cast<uint8_t>(rest);
          rests[static_cast<size_t>(word)] = static_cast<int>(rest >> 8 * type.rest_bytes);
          codes[static_cast<size_t>(word)] = code;
        }
        const auto store = [&](int offset, int field_width, const std::array<int, 8>& fields) {
          const auto bytes = pack_fields(field_width, fields);
          for (int row = 0; row < field_width; ++row)
            payload[offset + ((group * field_width + row) * 32 + lane) * 4 + byte] = bytes[static_cast<size_t>(row)];
        };
        if (type.rest_bits != 0) store(type.rest_bit_offset(), type.rest_bits, rests);
        store(type.code_offset(), width, codes);
      }
  const int escapes = static_cast<int>(tokens.size()), far_count = static_cast<int>(far.size());
  const int bytes = type.payload_bytes(width, escapes, far_count);
  if (bytes >= type.block_bytes()) return {};
  for (int at = type.escape_offset(width); at < bytes; ++at) payload[at] = static_cast<uint8_t>(random.bits());
  for (int i = 0; i < escapes; ++i) {
    uint8_t& pair = payload[type.escape_offset(width) + i / 2];
    const int shift = i % 2 * 4;
    pair = static_cast<uint8_t>((pair & ~(15 << shift)) | tokens[static_cast<size_t>(i)] << shift);
  }
  for (int i = 0; i < far_count; ++i)
    std::memcpy(payload + bytes - 4 - (i + 1) * type.far_bytes(), &far[static_cast<size_t>(i)],
                static_cast<size_t>(type.far_bytes()));
  const uint32_t header = static_cast<uint32_t>(width) | static_cast<uint32_t>(base) << 3 |
                          static_cast<uint32_t>(escapes) << 14 | static_cast<uint32_t>(kept) << 27;
  std::memcpy(payload + bytes - 4, &header, 4);
  made.payload.resize(static_cast<size_t>(bytes));
  REQUIRE(n == static_cast<int>(made.values.size()) / type.value_bytes);
  return made;
}

bool decodes_to(const codec::window::BlockCoder& coder, const ValueType& type, const ForeignBlock& block) {
  const Exact payload(block.payload, 1);
  Guarded values(block.values.size(), 3);
  const bool ok = coder.decode(type, payload.data(), block.payload.size(), values.data());
  return ok && values.intact() && values.copy(values.size()) == block.values;
}

}  // namespace

TEST_CASE("a decoder reads every base, width and trim, every token, and noise where nothing is looked at") {
  const int rounds = sanitized ? 4 : 12;
  int made = 0;
  std::map<int, int> trimmed;
  for (const NamedType& named : window_types) {
    const ValueType& type = named.type;
    for (int width = 1; width <= type.max_width(); ++width) {
      const int highest = (1 << type.exponent_bits) - (1 << width);
      for (const int base : {0, 1, 9, 10, highest / 2, highest - 1, highest})
        for (int round = 0; round < rounds; ++round) {
          if (base < 0 || base > highest) continue;
          INFO(named.name, ", width ", width, ", base ", base, ", seed ", round);
          Random random(static_cast<uint64_t>(round));
          const double share = std::array{0.0, 0.003, 0.05, 0.2}[static_cast<size_t>(round % 4)];
          int kept = std::array{0, 8, 11, 24}[static_cast<size_t>((round + base) % 4)];
          if (!type.can_keep(kept)) kept = 0;
          const ForeignBlock block = make_foreign_block(type, kept, width, base, share, round % 3 == 2, random);
          if (block.payload.empty()) continue;
          ++made;
          ++trimmed[kept];
          REQUIRE(decodes_to(codec::window::reference, type, block));
          for (const auto& path : codec::window::vector_paths()) {
            INFO("path ", path.name);
            REQUIRE(decodes_to(path.coder, type, block));
          }
        }
    }
  }
  CHECK(made > 100 * rounds);
  for (const int kept : {8, 11, 24}) CHECK(trimmed[kept] > 4 * rounds);
}

TEST_CASE("every value of a block may be kept out of line") {
  // Width 1, and all of bfloat16's 2048 codes say so: as many escapes as the header word can be asked for.
  Random random(3);
  const ValueType type = codec::window::bfloat16;
  ForeignBlock block = make_foreign_block(type, 0, 1, 120, 1.0, false, random);
  REQUIRE(!block.payload.empty());
  CHECK(decodes_to(codec::window::reference, type, block));
  for (const auto& path : codec::window::vector_paths()) CHECK(decodes_to(path.coder, type, block));
}

TEST_CASE("a decoder refuses a block whose header word breaks a limit") {
  for (const NamedType& named : window_types)
    for (const uint32_t kept : {0, 8, 11, 24}) {
      const ValueType& type = named.type;
      if (kept != 0 && !type.can_keep(static_cast<int>(kept))) continue;
      Random random(11);
      const int width = 2, base = 3;
      const ForeignBlock good = make_foreign_block(type, static_cast<int>(kept), width, base, 0.01, false, random);
      REQUIRE(decodes_to(codec::window::reference, type, good));
      uint32_t header;
      std::memcpy(&header, good.payload.data() + good.payload.size() - 4, 4);
      const auto refuses = [&](uint32_t word) {
        Bytes payload = good.payload;
        std::memcpy(payload.data() + payload.size() - 4, &word, 4);
        Bytes values(static_cast<size_t>(type.block_bytes()));
        bool all = !codec::window::reference.decode(type, payload.data(), payload.size(), values.data());
        for (const auto& path : codec::window::vector_paths())
          all = all && !path.coder.decode(type, payload.data(), payload.size(), values.data());
        return all;
      };
      CAPTURE(named.name);
      CAPTURE(kept);
      CHECK_FALSE(refuses(header));
      CHECK(refuses(header & ~7u));                    // width 0
      CHECK(refuses((header & ~7u) | 6));              // width 6
      CHECK(refuses((header & ~7u) | 7));              // width 7
      CHECK(refuses(header + (1u << 14)));             // one escape more than the codes say
      CHECK(refuses(header - (1u << 14)));             // one fewer
      for (uint32_t other = 0; other < 32; ++other) {  // bits that the type cannot keep, or not of this size
        CAPTURE(other);
        CHECK(refuses((header & ~(31u << 27)) | other << 27) == (other != kept));
      }
      const auto highest = static_cast<uint32_t>((1 << type.exponent_bits) - (1 << width));
      CHECK_FALSE(refuses((header & ~(0x7ffu << 3)) | highest << 3));  // the last base
      if (highest < 0x7ff) CHECK(refuses((header & ~(0x7ffu << 3)) | (highest + 1) << 3));
    }
}

}  // namespace narrowcast::tests
