// Texts that name no codec of the table: error budgets and presets.
#include <string>

#include "codec/text.h"
#include "doctest/doctest.h"
#include "every_codec.h"
#include "narrowcast/codec.h"
#include "support/codec_table.h"

namespace narrowcast::tests {
namespace {

ncast_codec parsed_codec(const std::string& text) {
  ncast_codec codec = 0;
  CAPTURE(text);
  REQUIRE(ncast_codec_parse(text.c_str(), &codec) == NCAST_OK);
  return codec;
}
std::string parse_error(const std::string& text) {
  ncast_codec codec = 0;
  CHECK(ncast_codec_parse(text.c_str(), &codec) == NCAST_INVALID_ARGUMENT);
  return ncast_last_error();
}

}  // namespace

TEST_CASE("an error budget is parsed and written, and can be forced") {
  for (const char* text :
       {"within:relative=0.01", "within:relative=1e-06", "within:relative=0.999", "within:relative=0.25!"})
    CHECK(text_of(parsed_codec(text)) == text);
  CHECK(parsed_codec("within:relative=.5") == parsed_codec("within:relative=0.5"));
  for (const char* text : {"within", "within:", "within:bound=0.1", "within!"})
    CHECK(parse_error(text) ==
          "codec '" + std::string(text) + "': expected within:relative=R, such as within:relative=0.01");
  for (const char* value : {"0", "1", "2", "-0.1", "nan", "inf", "", "0.1x", "0.01,relative=0.02", "1e-60"})
    CHECK(parse_error("within:relative=" + std::string(value)) == "codec 'within:relative=" + std::string(value) +
                                                                      "': relative is '" + value +
                                                                      "', not a number above 0 and below 1");
}

TEST_CASE("an error budget is only for calls, and must be a share") {
  const ncast_codec codec = parsed_codec("within:relative=0.01");
  CHECK(ncast_bound(NCAST_FLOAT32, codec, 1) == 0);
  CHECK(std::string(ncast_last_error()) ==
        "ncast_bound: codec is within:relative=0.01, which only the calls of a communicator accept");
  char text[NCAST_CODEC_TEXT_BYTES];
  for (const ncast_codec wrong : {ncast_codec{NCAST_CODEC_WITHIN}, codec | ncast_codec{1} << 60, codec | 0x200,
                                  NCAST_CODEC_WITHIN | ncast_codec{0x3f800000} << 16})
    CHECK(ncast_codec_format(wrong, text, sizeof text) == NCAST_INVALID_ARGUMENT);
}

TEST_CASE("a preset is the codec that it stands for, with further parameters") {
  size_t count = 0;
  const char* codec = nullptr;
  for (; const char* const name = ncast_codec_preset(count, &codec); ++count) {
    CHECK(parsed_codec(name) == parsed_codec(codec));
    CHECK(parsed_codec(std::string(name) + "!") == forced(parsed_codec(codec)));
    CHECK(parsed_codec(std::string(name) + ":seed=7") == parsed_codec(codec::text::expanded({"", codec}, ":seed=7")));
  }
  CHECK(count == std::size(codec::presets));
  CHECK(ncast_codec_preset(0, nullptr) == std::string("minmax8"));
  CHECK(text_of(parsed_codec("sdp4bit:seed=7")) == "int4:group=128,rotate=32,rounding=stochastic,seed=7");
  CHECK(text_of(parsed_codec("taco:seed=7")) == "e4m3:seed=7");
  CHECK(parse_error("sdp4bit:group=32") ==
        "preset 'sdp4bit': codec 'int4:group=128,rotate=32,rounding=stochastic,group=32': group is given twice");
}

}  // namespace narrowcast::tests
