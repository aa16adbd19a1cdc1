// The flag with which calls force a codec.
#include <string>

#include "codec/codec.h"
#include "doctest/doctest.h"
#include "every_codec.h"
#include "support/codec_table.h"

namespace narrowcast::tests {

TEST_CASE("every codec can be forced in text and back, except auto; a forced raw is raw") {
  for_each_codec([](const ncast_codec_info&, ncast_codec codec) {
    const std::string plain = text_of(codec), text = plain + "!";
    CAPTURE(text);
    ncast_codec without = 0, parsed = 0;
    REQUIRE(ncast_codec_parse(plain.c_str(), &without) == NCAST_OK);
    REQUIRE(ncast_codec_parse(text.c_str(), &parsed) == NCAST_OK);
    const bool is_raw = without == NCAST_CODEC_RAW;
    CHECK(parsed == (is_raw ? without : forced(without)));
    CHECK(text_of(parsed) == (is_raw ? plain : text));
    CHECK(text_of(forced(codec)) == (is_raw ? plain : text));
    CHECK(codec::canonical(forced(codec)) == parsed);
  });
  ncast_codec codec = 0;
  for (const auto& [text, message] :
       {std::pair{"auto!", "codec 'auto!': auto cannot be forced"},
        std::pair{
            "window!!",
            "'window!' is not a codec (known: auto, within, raw, window, dense, int8, int8a, int6, int4, int2, e4m3, "
            "e5m2, mxfp8, mxfp6, mxfp4, nvfp4, abs, rate, minmax8, sdp4bit, taco, tahquant, "
            "quickreduce-int4)"}}) {
    CHECK(ncast_codec_parse(text, &codec) == NCAST_INVALID_ARGUMENT);
    CHECK(std::string(ncast_last_error()) == message);
  }
  char text[NCAST_CODEC_TEXT_BYTES];
  CHECK(ncast_codec_format(NCAST_CODEC_AUTO | NCAST_CODEC_FORCED, text, sizeof text) == NCAST_INVALID_ARGUMENT);
  CHECK(std::string(ncast_last_error()) == "ncast_codec_format: codec is auto, which cannot be forced");
}

TEST_CASE("frames reject forced codecs and say where they are valid") {
  CHECK(ncast_bound(NCAST_FLOAT32, forced(NCAST_CODEC_WINDOW), 1) == 0);
  CHECK(std::string(ncast_last_error()) ==
        "ncast_bound: codec is window!, but only the calls of a communicator can force a codec");
  CHECK(ncast_bound(NCAST_FLOAT32, NCAST_CODEC_WINDOW | 0x200, 1) == 0);
  CHECK(std::string(ncast_last_error()) == "ncast_bound: codec is 0x201, but bits 9 to 15 are reserved");
}

}  // namespace narrowcast::tests
