// The worked bytes of docs/format/, read from the pages themselves.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "codec/dense/block.h"
#include "codec/fields/blocks.h"
#include "codec/grouped/blocks.h"
#include "codec/window/vectorized.h"
#include "doctest/doctest.h"
#include "narrowcast/codec.h"
#include "support/frame_info.h"
#include "support/hexdump.h"

namespace narrowcast::tests {
namespace {

Bytes encode(const std::vector<uint16_t>& values, ncast_codec codec, uint32_t flags) {
  Bytes frame(ncast_bound(NCAST_BFLOAT16, codec, values.size()));
  size_t wire_bytes = 0;
  REQUIRE(ncast_encode(values.data(), NCAST_BFLOAT16, values.size(), codec, encoder_flags(flags), frame.data(),
                       frame.size(), &wire_bytes) == NCAST_OK);
  frame.resize(wire_bytes);
  return frame;
}

const std::vector<uint16_t> three = {0x3f80, 0xc000, 0x3f00};

}  // namespace

TEST_CASE("the raw frame of the specification is what three values encode to") {
  CHECK(whole(hexdump("raw.md", "raw_frame")) == encode(three, NCAST_CODEC_RAW, 0));
}

TEST_CASE("the window frame of the specification is what nine values encode to") {
  std::vector<uint16_t> nine;
  for (int i = 0; i < 3; ++i) nine.insert(nine.end(), three.begin(), three.end());
  CHECK(whole(hexdump("frame.md", "window_frame")) == encode(nine, NCAST_CODEC_WINDOW, NCAST_MORE));
}

TEST_CASE("the window payload of the specification decodes to its values") {
  // All 1.0: rests 0, codes 6, which pack to b6, 76, f6. Then what the page says.
  Bytes payload(2832);
  for (size_t at = 2048; at < 2816; ++at) {
    constexpr uint8_t rows[] = {0xb6, 0x76, 0xf6};
    payload[at] = rows[(at - 2048) / 128 % 3];
  }
  for (const Line& line : hexdump("window.md", "window_payload")) {
    REQUIRE(line.offset + line.bytes.size() <= payload.size());
    std::copy(line.bytes.begin(), line.bytes.end(), payload.begin() + static_cast<std::ptrdiff_t>(line.offset));
  }
  std::vector<uint16_t> expected(2048, 0x3f80);
  constexpr int indices[] = {0, 4, 256, 260, 512, 516, 768, 772};
  constexpr uint16_t bits[] = {0xbcc0, 0x3d00, 0x3c00, 0x3e00, 0x3f00, 0x6400, 0x3e80, 0x3f80};
  for (size_t i = 0; i < 8; ++i) expected[static_cast<size_t>(indices[i])] = bits[i];

  const auto decodes = [&](const codec::window::BlockCoder& coder) {
    std::vector<uint16_t> values(2048);
    return coder.decode(codec::window::bfloat16, payload.data(), payload.size(),
                        reinterpret_cast<uint8_t*>(values.data())) &&
           values == expected;
  };
  CHECK(decodes(codec::window::reference));
  for (const auto& path : codec::window::vector_paths()) CHECK(decodes(path.coder));
}

TEST_CASE("the dense payload of the specification is what its values encode to") {
  std::vector<uint16_t> values(2048, 0x3f80);
  constexpr int indices[] = {1, 2, 3, 4, 5, 6, 1030};
  constexpr uint16_t bits[] = {0x4000, 0xbf00, 0x3e80, 0x3d80, 0x7f80, 0x3f00, 0xc000};
  for (size_t i = 0; i < std::size(bits); ++i) values[static_cast<size_t>(indices[i])] = bits[i];
  Bytes expected(784);
  for (const Line& line : hexdump("dense.md", "dense_payload")) {
    REQUIRE(line.offset + line.bytes.size() <= expected.size());
    std::copy(line.bytes.begin(), line.bytes.end(), expected.begin() + static_cast<std::ptrdiff_t>(line.offset));
  }
  for (const codec::dense::BlockCoder* coder : {&codec::dense::reference, &codec::dense::fast}) {
    Bytes payload(4096);
    payload.resize(
        coder->encode(codec::dense::bfloat16, reinterpret_cast<const uint8_t*>(values.data()), payload.data()));
    CHECK(payload == expected);
    std::vector<uint16_t> decoded(2048);
    CHECK(coder->decode(codec::dense::bfloat16, expected.data(), expected.size(),
                        reinterpret_cast<uint8_t*>(decoded.data())));
    CHECK(decoded == values);
  }
}

TEST_CASE("the payloads of the specification of quantised groups are what its values encode to") {
  GroupedBlock block(NCAST_BFLOAT16);
  constexpr float values[] = {1.0f, -2.0f, 0.25f, 3.5f, NAN};
  for (uint32_t i = 0; i < std::size(values); ++i) block.set(i, values[i]);
  block.set(33, -0.875f);
  const auto check = [&](const char* codec, const std::string& name, Bytes expected) {
    for (const Line& line : hexdump("grouped.md", name)) {
      REQUIRE(line.offset + line.bytes.size() <= expected.size());
      std::copy(line.bytes.begin(), line.bytes.end(), expected.begin() + static_cast<std::ptrdiff_t>(line.offset));
    }
    CHECK(block.encoded(grouped_codec(codec)) == expected);
  };
  Bytes int4(1152);
  for (size_t scale = 1024; scale < int4.size(); scale += 2) int4[scale] = 0x80;
  check("int4", "int4_payload", int4);
  check("nvfp4", "nvfp4_payload", Bytes(1168));
}

TEST_CASE("the payloads of the specification of abs and rate are what its values encode to") {
  const auto check = [](const FieldBlock& block, const char* page, const std::string& name, Bytes expected) {
    for (const Line& line : hexdump(page, name)) {
      REQUIRE(line.offset + line.bytes.size() <= expected.size());
      std::copy(line.bytes.begin(), line.bytes.end(), expected.begin() + static_cast<std::ptrdiff_t>(line.offset));
    }
    CHECK(block.encoded() == expected);
  };
  FieldBlock absolute(NCAST_FLOAT32, "abs:bound=0.5");
  for (uint32_t i = 0; i < absolute.elems(); ++i) absolute.set(i, 3);
  absolute.set(1, 4.4);
  absolute.set(2, 2);
  for (uint32_t i = 64; i < 96; ++i) absolute.set_bits(i, 0x7fc00000);
  check(absolute, "absolute.md", "abs_payload", Bytes(48));

  FieldBlock rate(NCAST_FLOAT32, "rate:bits=9");
  for (uint32_t i = 0; i < 5; ++i) rate.set(i, 1 + i % 4);
  rate.set(5, NAN);
  check(rate, "rate.md", "rate_payload", Bytes(1152));
}

}  // namespace narrowcast::tests
