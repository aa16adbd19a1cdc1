#include "nccl/settings.h"

#include "doctest/doctest.h"

using namespace narrowcast::nccl;

namespace {

Settings from_file(const char* content) {
  Settings settings;
  apply_file(content, "test.toml", &settings);
  return settings;
}

}  // namespace

TEST_CASE("a codec is for all operations or for one") {
  Settings settings;
  CHECK(apply_setting("codec", "raw, all_gather=window", "test", &settings));
  CHECK(*settings.codec[NCAST_OP_ALL_REDUCE] == NCAST_CODEC_RAW);
  CHECK(*settings.codec[NCAST_OP_ALL_GATHER] == NCAST_CODEC_WINDOW);
}

TEST_CASE("off is everything or a list of operations") {
  Settings settings;
  CHECK(apply_setting("off", "send,recv", "test", &settings));
  CHECK_FALSE(settings.off_everything);
  CHECK(settings.off[NCAST_OP_SEND]);
  CHECK_FALSE(settings.off[NCAST_OP_ALL_REDUCE]);
  CHECK(apply_setting("off", "1", "test", &settings));
  CHECK(settings.off_everything);
}

TEST_CASE("a setting that is not known is said to be none") {
  Settings settings;
  CHECK_FALSE(apply_setting("codecs", "raw", "test", &settings));
}

TEST_CASE("what is misunderstood changes nothing") {
  Settings settings;
  CHECK(apply_setting("codec", "zip,all_gather=zip,gather_all=raw", "test", &settings));
  CHECK(apply_setting("take", "perhaps", "test", &settings));
  CHECK(apply_setting("attach", "soon", "test", &settings));
  CHECK(apply_setting("stats_seconds", "soon", "test", &settings));
  CHECK(apply_setting("off", "all_gathers", "test", &settings));
  CHECK(digest(settings) == digest(Settings()));
  CHECK(settings.stats_seconds == 0);
}

TEST_CASE("a file has settings and rules") {
  const Settings settings = from_file(R"(
    codec = "window"
    off = ["send", "recv"]
    attach = "init"
    verify = true
    nvtx = false
    stats_seconds = 2.5
    [[rule]]
    operation = "all_reduce"
    dtype = "bfloat16"
    max_bytes = 1048576
    take = "always"
    [[rule]]
    ranks = 4
    codec = "raw"
  )");
  CHECK(*settings.codec[NCAST_OP_REDUCE] == NCAST_CODEC_WINDOW);
  CHECK(settings.off[NCAST_OP_RECV]);
  CHECK(settings.attach == Attach::init);
  CHECK(settings.verify);
  CHECK_FALSE(settings.nvtx);
  CHECK(settings.stats_seconds == 2.5);
  REQUIRE(settings.rules.size() == 2);
  CHECK(*settings.rules[0].operation == NCAST_OP_ALL_REDUCE);
  CHECK(*settings.rules[0].dtype == NCAST_BFLOAT16);
  CHECK(settings.rules[0].max_bytes == 1048576);
  CHECK(*settings.rules[0].take == Take::always);
  CHECK(*settings.rules[1].ranks == 4);
  CHECK(*settings.rules[1].codec == NCAST_CODEC_RAW);
}

TEST_CASE("a rule that is not understood in full is left out") {
  CHECK(from_file("[[rule]]\ndtype = \"bf16\"\n").rules.empty());
  CHECK(from_file("[[rule]]\nsize = 3\n").rules.empty());
  CHECK(from_file("[[rule]]\nmin_bytes = -1\n").rules.empty());
  CHECK(from_file("rule = 3\n").rules.empty());
}

TEST_CASE("a file that is no TOML is left out") {
  CHECK(digest(from_file("codec = \"raw\"\ncodec = window\n")) == digest(Settings()));
}

TEST_CASE("settings that differ have different digests") {
  CHECK(digest(from_file("codec = \"raw\"")) != digest(from_file("codec = \"window\"")));
  CHECK(digest(from_file("take = \"never\"")) != digest(Settings()));
  CHECK(digest(from_file("attach = \"init\"")) != digest(Settings()));
  CHECK(digest(from_file("[[rule]]\nranks = 2\n")) != digest(from_file("[[rule]]\nranks = 3\n")));
  // Where the counters go is no other rank's business.
  CHECK(digest(from_file("stats = \"here\"")) == digest(Settings()));
}
