// Every codec of the table, those of the tests included, in frames of every value type.
#include <string>

#include "codec/codec.h"
#include "codec/text.h"
#include "doctest/doctest.h"
#include "every_codec.h"
#include "support/tolerance.h"

namespace narrowcast::tests {
namespace {

Bytes encode(const Bytes& values, ncast_dtype dtype, ncast_codec codec, uint32_t flags, size_t from_offset,
             size_t to_offset) {
  const uint64_t elems = values.size() / ncast_dtype_bytes(dtype);
  const Exact from(values, from_offset);
  Guarded frame(ncast_bound(dtype, codec, elems), to_offset);
  size_t wire_bytes = 0;
  REQUIRE(ncast_encode(from.data(), dtype, elems, codec, encoder_flags(flags), frame.data(), frame.size(),
                       &wire_bytes) == NCAST_OK);
  REQUIRE(frame.untouched_after(wire_bytes));
  return frame.copy(wire_bytes);
}

std::vector<uint64_t> sizes_around_blocks(ncast_dtype dtype, uint32_t block_bytes) {
  const uint64_t block = block_bytes / ncast_dtype_bytes(dtype);
  std::vector<uint64_t> sizes = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 127, 1000};
  for (uint64_t blocks = 1; blocks <= 4; ++blocks)
    for (const int64_t around : {-17, -1, 0, 1, 16}) sizes.push_back(blocks * block + static_cast<uint64_t>(around));
  return sizes;
}

}  // namespace

TEST_CASE("every codec keeps its promise in frames of every type and size") {
  for_each_codec([](const ncast_codec_info& info, ncast_codec codec) {
    for (int number = 0; number <= last_dtype; ++number) {
      const auto dtype = static_cast<ncast_dtype>(number);
      const ncast_codec_type* const type = type_of(info, dtype);
      for (const uint64_t elems : sizes_around_blocks(dtype, type != nullptr ? type->block_bytes : 4096)) {
        const std::string name = text_of(codec);
        INFO(name, ", ", name_of(dtype), ", ", elems, " values");
        Random random(elems + static_cast<uint64_t>(number));
        const auto offset = [&] { return static_cast<size_t>(random.below(17)); };
        const Bytes values = make_values(dtype, elems, random);
        const auto flags = static_cast<uint32_t>(random.below(4));  // of NCAST_CHECKSUM and NCAST_MORE
        const Bytes frame = encode(values, dtype, codec, flags, offset(), offset());
        REQUIRE(encode(values, dtype, codec, flags | NCAST_REFERENCE, offset(), offset()) == frame);

        ncast_frame_info header = sized_frame_info();
        REQUIRE(ncast_inspect(frame.data(), frame.size(), &header) == NCAST_OK);
        REQUIRE(header.elems == elems);
        REQUIRE(header.wire_bytes == frame.size());
        REQUIRE(text_of(header.codec) == (type != nullptr ? name : "raw"));
        if (info.fixed_payload != 0) REQUIRE(frame.size() == ncast_bound(dtype, codec, elems));
        REQUIRE(ncast_inspect_blocks(frame.data(), frame.size(), nullptr, 0) == NCAST_OK);

        const Decoding decoded = decode(frame, values.size(), 0, offset(), offset());
        REQUIRE(decoded.status == NCAST_OK);
        REQUIRE(decode(frame, values.size() + 50, NCAST_REFERENCE, offset(), offset()) == decoded);
        if (info.exact != 0 || type == nullptr)
          REQUIRE(decoded.values == values);
        else
          REQUIRE(testing::is_near(dtype, decoded.values,
                                   testing::moved_values(codec, *type, values, testing::Blocks::frame)));
      }
    }
  });
}

TEST_CASE("a frame whose header has other parameters than the codec allows is corrupt") {
  for_each_codec([](const ncast_codec_info& info, ncast_codec codec) {
    const ncast_dtype dtype = info.types[0].dtype;
    Random random(1);
    const Bytes values = make_values(dtype, 10, random);
    const Bytes frame = encode(values, dtype, codec, 0, 0, 0);
    const codec::Row& row = *codec::find_row(codec);
    const ncast_codec valid = codec::explicit_parameters(codec);
    std::vector<ncast_codec> wrong;
    for (uint32_t i = 0; i < info.parameter_count; ++i) {
      const codec::ParameterField field = row.field(i);
      wrong.push_back(codec::set(valid, field, 0));
      if (info.parameters[i].kind != NCAST_PARAMETER_REAL && info.parameters[i].most != 65535)
        wrong.push_back(codec::set(valid, field, codec::get(codec::set(0, field, ~0u), field)));
    }
    for (ncast_codec bit = 1; bit != 0; bit <<= 1)
      if ((row.unused_bits() & bit) != 0) wrong.push_back(valid | bit);
    for (const ncast_codec parameters : wrong) {
      CAPTURE(parameters);
      const uint64_t word = parameters >> codec::first_parameter_bit;
      Bytes changed = frame;
      std::memcpy(changed.data() + 40, &word, sizeof word);
      REQUIRE(decode(changed, values.size(), 0, 0, 0).status == NCAST_CORRUPT);
    }
    Bytes changed = frame;
    changed[46] = 1;  // above all parameters
    REQUIRE(decode(changed, values.size(), 0, 0, 0).status == NCAST_CORRUPT);
  });
}

TEST_CASE("the text of every codec parses to the same codec") {
  for_each_codec([](const ncast_codec_info&, ncast_codec codec) {
    const std::string text = text_of(codec);
    CAPTURE(text);
    ncast_codec parsed = 0;
    REQUIRE(ncast_codec_parse(text.c_str(), &parsed) == NCAST_OK);
    CHECK(text_of(parsed) == text);
    CHECK(ncast_bound(NCAST_FLOAT32, parsed, 5000) == ncast_bound(NCAST_FLOAT32, codec, 5000));
  });
  ncast_codec codec = 0;
  CHECK(ncast_codec_parse("auto", &codec) == NCAST_OK);
  CHECK(codec == NCAST_CODEC_AUTO);
}

TEST_CASE("text that names no codec is refused with what is known") {
  const auto refused = [](const char* text, const char* part) {
    ncast_codec codec = 0;
    CAPTURE(text);
    CHECK(ncast_codec_parse(text, &codec) == NCAST_INVALID_ARGUMENT);
    CHECK(std::string(ncast_last_error()).find(part) != std::string::npos);
  };
  refused("zip", "'zip' is not a codec (known: auto, within, raw, window");
  refused("", "'' is not a codec");
  refused("window:", "'' is not key=value");
  refused("window:width=3", "has no parameter 'width'");
  refused("raw,window", "'raw,window' is not a codec");
}

TEST_CASE("parameters of every kind are parsed, checked and written") {
  using codec::Row;
  static constexpr Row row{7,
                           "kinds",
                           "kinds",
                           codec::Exactness::bounded,
                           codec::Payload::fixed,
                           {{"count", NCAST_PARAMETER_INTEGER, 2, 40000, 3, nullptr},
                            {"group", NCAST_PARAMETER_POWER_OF_TWO, 1, 32768, 128, nullptr},
                            {"part", NCAST_PARAMETER_POWER_OF_TWO, 16, 64, 32, nullptr}},
                           {}};
  static constexpr Row real{8,
                            "real",
                            "real",
                            codec::Exactness::bounded,
                            codec::Payload::fixed,
                            {{"bound", NCAST_PARAMETER_REAL, 1e-6, 1e6, 1e-3, nullptr},
                             {"way", NCAST_PARAMETER_CHOICE, 1, 3, 1, "near|up|far"}},
                            {}};
  static constexpr Row rows[] = {row, real};
  const auto written = [](const char* text) {
    const codec::ParsedCodec parsed = codec::parse(rows, text);
    return parsed.codec ? codec::format(rows, *parsed.codec) : parsed.error;
  };
  for (const char* text :
       {"kinds", "kinds:count=40000", "kinds:group=1", "kinds:group=32768,part=16", "kinds:count=2,group=64,part=64",
        "real:bound=1e-06", "real:bound=0.3,way=far", "real:way=up", "real:bound=1e+06"})
    CHECK(written(text) == text);
  CHECK(written("kinds:part=32,count=3,group=128") == "kinds");
  CHECK(written("real:bound=1e-3,way=up") == "real:way=up");
  CHECK(written("real:way=near") == "real");
  CHECK(written("real:bound=.25") == "real:bound=0.25");
  CHECK(*codec::parse(rows, "kinds:count=40000,group=64,part=64").codec ==
        (7u | 40000u << 16 | 7ull << 32 | 7ull << 40));

  const auto refused = [&](const char* text, const char* part) {
    CAPTURE(text);
    CHECK(written(text).find(part) != std::string::npos);
  };
  refused("kinds:group=100", "group is '100', not a power of two from 1 to 32768");
  refused("kinds:group=65536", "not a power of two");
  refused("kinds:group=0", "not a power of two");
  refused("kinds:part=8", "part is '8', not a power of two from 16 to 64");
  refused("kinds:count=1", "count is '1', not a number from 2 to 40000");
  refused("kinds:count=2.5", "not a number");
  refused("kinds:count=65538", "not a number");
  refused("kinds:count=5,count=6", "count is given twice");
  for (const char* text : {"real:way=", "real:way=2", "real:way=near|up", "real:way=fa", "real:way=farther"})
    refused(text, ", not one of near, up, far");
  refused("real:way=up,way=up", "way is given twice");
  for (const char* text : {"real:bound=0", "real:bound=-1", "real:bound=nan", "real:bound=inf", "real:bound=1e9",
                           "real:bound=1e-7", "real:bound=", "real:bound=1x"})
    refused(text, "not a number from 1e-06 to 1e+06");
}

TEST_CASE("a number that is no codec, has reserved bits or parameters that the codec lacks is refused") {
  CHECK(ncast_bound(NCAST_FLOAT32, 77, 1) == 0);
  CHECK(ncast_bound(NCAST_FLOAT32, NCAST_CODEC_WINDOW | 0x100, 1) == 0);
  CHECK(ncast_bound(NCAST_FLOAT32, NCAST_CODEC_WINDOW | ncast_codec{1} << 16, 1) == 0);
  CHECK(std::string(ncast_last_error()) ==
        "ncast_bound: codec window has 0 parameters, but 0x10001 sets bits beyond them");
  char text[8];
  CHECK(ncast_codec_format(77, text, sizeof text) == NCAST_INVALID_ARGUMENT);
  CHECK(ncast_codec_format(NCAST_CODEC_WINDOW, text, 6) == NCAST_TOO_SMALL);
  CHECK(ncast_codec_format(NCAST_CODEC_WINDOW, text, 7) == NCAST_OK);
  CHECK(std::string(text) == "window");
}

}  // namespace narrowcast::tests
