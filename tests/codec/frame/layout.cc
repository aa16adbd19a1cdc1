// The numbers of docs/format/, written down once more, against the constants that all implementations share.
#include "codec/frame/layout.h"

#include <cstddef>

#include "codec/window/format.h"
#include "doctest/doctest.h"

namespace narrowcast::tests {
namespace {

using namespace codec::window;

struct Row {
  ValueType type;
  int mantissa_bits, block_elems, groups, max_width, far_bytes;
  int rest_byte_offset, rest_bit_offset, code_offset, code_bytes_per_width;
};
constexpr Row table[] = {
    {bfloat16, 7, 2048, 2, 5, 1, 0, 2048, 2048, 256},   {float16, 10, 2048, 2, 5, 1, 0, 2048, 2816, 256},
    {float32, 7, 1024, 1, 5, 1, 2048, 3072, 3072, 128}, {float64, 4, 1024, 1, 5, 2, 6144, 6144, 6784, 128},
    {float8_e4m3, 3, 4096, 4, 4, 1, 0, 0, 2048, 512},   {float8_e5m2, 2, 4096, 4, 5, 1, 0, 0, 1536, 512},
};

}  // namespace

TEST_CASE("the sections of a window payload stand where the specification says") {
  for (const Row& row : table) {
    CAPTURE(row.type.value_bytes);
    CAPTURE(row.type.exponent_bits);
    CHECK(row.type.mantissa_bits() == row.mantissa_bits);
    CHECK(row.type.block_elems() == row.block_elems);
    CHECK(row.type.groups() == row.groups);
    CHECK(row.type.max_width() == row.max_width);
    CHECK(row.type.far_bytes() == row.far_bytes);
    CHECK(row.type.rest_byte_offset() == row.rest_byte_offset);
    CHECK(row.type.rest_bit_offset() == row.rest_bit_offset);
    CHECK(row.type.code_offset() == row.code_offset);
    for (int width = 1; width <= row.max_width; ++width)
      CHECK(row.type.escape_offset(width) == row.code_offset + width * row.code_bytes_per_width);
    CHECK(row.type.payload_bytes(2, 5, 2) % 16 == 0);
    CHECK(row.type.payload_bytes(2, 5, 2) - (row.type.escape_offset(2) + 3 + 2 * row.far_bytes + 4) < 16);
  }
}

TEST_CASE("rest, exponent and tail are all of a value, and a trimmed type stores fewer of the mantissa") {
  for (const Row& row : table) {
    const ValueType& type = row.type;
    CHECK(type.trimmed_bits() == 0);
    CHECK(type.kept_bits() + type.exponent_bits == 8 * type.value_bytes);
    CHECK(type.escape_offset(type.max_width()) <= type.block_bytes());
    for (int kept = 0; kept < 64; ++kept) {
      if (!type.can_keep(kept)) continue;
      CHECK(type.trimmed(kept).kept_bits() == kept);
      CHECK(type.trimmed(kept).code_offset() == kept * type.block_elems() / 8);
    }
  }
  CHECK(float16.trimmed(8).trimmed_bits() == 3);
  CHECK(float32.trimmed(11).trimmed_bits() == 13);
  CHECK(float32.trimmed(8).trimmed_bits() == 16);
  CHECK(float64.trimmed(24).trimmed_bits() == 29);
  CHECK_FALSE(bfloat16.can_keep(8));
}

TEST_CASE("as many bits are kept as the values of a block need") {
  CHECK(float32.least_kept(0xff800000) == 8);
  CHECK(float32.least_kept(1u << 16) == 8);
  CHECK(float32.least_kept(1u << 15) == 11);
  CHECK(float32.least_kept(1u << 13) == 11);
  CHECK(float32.least_kept(1u << 12) == 0);
  CHECK(float16.least_kept(8) == 8);
  CHECK(float16.least_kept(4) == 0);
  CHECK(float64.least_kept(uint64_t{1} << 44) == 11);
  CHECK(float64.least_kept(uint64_t{1} << 41) == 24);
  CHECK(float64.least_kept(uint64_t{1} << 28) == 0);
  CHECK(bfloat16.least_kept(0) == 0);
}

TEST_CASE("the header word has room for every base and every count of escapes") {
  for (const Row& row : table) {
    CHECK((1 << row.type.exponent_bits) - 2 <= static_cast<int>(base_mask));
    CHECK(row.type.block_elems() <= static_cast<int>(escapes_mask));
  }
}

TEST_CASE("the fields of a frame header stand where the specification says") {
  using format::FrameHeader;
  CHECK(sizeof(FrameHeader) == 64);
  CHECK(offsetof(FrameHeader, magic) == 0);
  CHECK(offsetof(FrameHeader, version) == 4);
  CHECK(offsetof(FrameHeader, codec) == 5);
  CHECK(offsetof(FrameHeader, dtype) == 6);
  CHECK(offsetof(FrameHeader, flags) == 7);
  CHECK(offsetof(FrameHeader, elems) == 8);
  CHECK(offsetof(FrameHeader, wire_bytes) == 16);
  CHECK(offsetof(FrameHeader, block_elems) == 24);
  CHECK(offsetof(FrameHeader, blocks) == 28);
  CHECK(offsetof(FrameHeader, checksum) == 32);
  CHECK(offsetof(FrameHeader, parameters) == 40);
  CHECK(offsetof(FrameHeader, reserved) == 48);
  CHECK(format::max_raw_bytes == 1ull << 35);
}

}  // namespace narrowcast::tests
