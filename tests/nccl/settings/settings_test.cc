#include "nccl/settings/settings.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "nccl/report/log.h"
#include "nccl/settings/text.h"

using namespace narrowcast::nccl;

namespace {

Settings from_file(const char* content) {
  Settings settings;
  apply_file(content, "test.toml", &settings);
  return settings;
}

// By variable, from the tables of the guide, whose first columns are the variable and its default.
std::map<std::string, std::string> documented_defaults() {
  std::ifstream file(NARROWCAST_TEST_DATA "/../docs/guide/settings.md");
  std::map<std::string, std::string> defaults;
  for (std::string line; std::getline(file, line);) {
    std::smatch row;
    if (std::regex_match(line, row, std::regex("\\| `(NARROWCAST_[A-Z0-9_]+)` \\| (?:`(.*?)` )?\\| .*")))
      CHECK_MESSAGE(defaults.emplace(row[1], row[2]).second, std::string(row[1]));
  }
  return defaults;
}

}  // namespace

TEST_CASE("a codec applies to all operations or to one, and commas also separate the parameters of a codec") {
  const auto codec_of = [](const char* text) { return *parse_codec(text).codec; };
  Settings settings;
  CHECK(apply_setting("codec", "int4:group=64", "test", &settings));
  CHECK(*settings.codec[NCAST_OP_SEND] == codec_of("int4:group=64"));
  CHECK(apply_setting("codec", "int4:group=64,all_reduce=raw, all_gather = int4:group=128 ,send=window", "test",
                      &settings));
  CHECK(*settings.codec[NCAST_OP_SCATTER] == codec_of("int4:group=64"));
  CHECK(*settings.codec[NCAST_OP_ALL_REDUCE] == NCAST_CODEC_RAW);
  CHECK(*settings.codec[NCAST_OP_ALL_GATHER] == codec_of("int4:group=128"));
  CHECK(*settings.codec[NCAST_OP_SEND] == NCAST_CODEC_WINDOW);
  CHECK(codec_text(*settings.codec[NCAST_OP_ALL_GATHER]) == "int4:group=128");
  // The default written out is the codec without parameters.
  CHECK(apply_setting("codec", "int4:group=32", "test", &settings));
  CHECK(*settings.codec[NCAST_OP_SEND] == codec_of("int4"));
}

TEST_CASE("a codec that is not exact applies to broadcasts only if they are named") {
  Settings settings;
  CHECK(apply_setting("codec", "window,int4", "test", &settings));
  CHECK(*settings.codec[NCAST_OP_SCATTER] == *parse_codec("int4").codec);
  CHECK(*settings.codec[NCAST_OP_BROADCAST] == NCAST_CODEC_WINDOW);
  CHECK(apply_setting("codec", "broadcast=int4", "test", &settings));
  CHECK(*settings.codec[NCAST_OP_BROADCAST] == *parse_codec("int4").codec);
}

TEST_CASE("empty entries of a list of codecs are ignored") {
  Settings settings;
  CHECK(apply_setting("codec", ",raw,, ,recv=window,", "test", &settings));
  CHECK(*settings.codec[NCAST_OP_SEND] == NCAST_CODEC_RAW);
  CHECK(*settings.codec[NCAST_OP_RECV] == NCAST_CODEC_WINDOW);
  for (const char* nothing : {"", " ", ",", " , "}) CHECK(apply_setting("codec", nothing, "test", &settings));
  CHECK(*settings.codec[NCAST_OP_SEND] == NCAST_CODEC_RAW);
}

TEST_CASE("an invalid entry of a list of codecs is ignored, and the others apply") {
  for (const char* entry :
       {"rate:bits=7", "rate:bits=32", "rate:bits=", "rate:bits", "rate:", "rate:bits=16.5", "rate:bits=-16",
        "rate:width=16", "rate:bits=16,bits=17", "rate:bits=16,width=7", "window:bits=16", "auto:bits=16", ":bits=16",
        "bits=16", "send=rate:bits=7", "send=", "send=zip", "gather_all=raw", "=raw"}) {
    CAPTURE(entry);
    Settings settings;
    CHECK(apply_setting("codec", std::string("recv=window,") + entry + ",all_gather=raw", "test", &settings));
    CHECK(*settings.codec[NCAST_OP_RECV] == NCAST_CODEC_WINDOW);
    CHECK(*settings.codec[NCAST_OP_ALL_GATHER] == NCAST_CODEC_RAW);
    CHECK_FALSE(settings.codec[NCAST_OP_SEND]);
    CHECK_FALSE(settings.codec[NCAST_OP_ALL_REDUCE]);
  }
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

TEST_CASE("unknown settings are rejected") {
  Settings settings;
  CHECK_FALSE(apply_setting("codecs", "raw", "test", &settings));
  for (const std::string_view alone : environment_only) CHECK_FALSE(apply_setting(alone, "1", "test", &settings));
  for (const std::string_view key : keys) CHECK(apply_setting(key, "1", "test", &settings));
}

TEST_CASE("the guide has every setting with its default") {
  const std::map<std::string, std::string> documented = documented_defaults();
  std::set<std::string> known;
  for (const std::string_view key : environment_only) known.insert(variable_of(key));
  for (const std::string_view key : keys) known.insert(variable_of(key));
  std::set<std::string> names;
  for (const auto& [name, value] : documented) names.insert(name);
  CHECK(names == known);
  const Settings unset;
  for (const std::string_view key : keys) {
    const std::string& value = documented.at(variable_of(key));
    CAPTURE(key);
    CAPTURE(value);
    Settings settings;
    CHECK(apply_setting(key, value, "test", &settings));
    if (key == "codec") {
      CHECK(settings.codec[0] == NCAST_CODEC_AUTO);
    } else if (key == "take") {
      CHECK(settings.take == TakeMode::automatic);
    } else if (key == "debug") {
      CHECK(settings.debug == Level::warn);
    } else {
      CHECK(digest(settings) == digest(unset));
      CHECK(settings.max_ctas == unset.max_ctas);
      CHECK(settings.nvtx == unset.nvtx);
      CHECK(settings.calibrate.value_or(true));
      CHECK(settings.off_everything == unset.off_everything);
      CHECK(settings.stats_seconds == unset.stats_seconds);
      CHECK((settings.stats + settings.plans + settings.nccl_library).empty());
    }
  }
}

TEST_CASE("invalid values are ignored") {
  Settings settings;
  CHECK(apply_setting("codec", "zip,all_gather=zip,gather_all=raw", "test", &settings));
  CHECK(apply_setting("take", "perhaps", "test", &settings));
  CHECK(apply_setting("attach", "soon", "test", &settings));
  CHECK(apply_setting("stats_seconds", "soon", "test", &settings));
  CHECK(apply_setting("off", "all_gathers", "test", &settings));
  for (const char* bytes : {"many", "-1", "1.5", "64M", "18446744073709551616"})
    CHECK(apply_setting("scratch_bytes", bytes, "test", &settings));
  CHECK(apply_setting("debug", "loud", "test", &settings));
  for (const char* ctas : {"many", "0", "65", "-3"}) CHECK(apply_setting("max_ctas", ctas, "test", &settings));
  for (const char* value : {"no", "false", "2"}) CHECK(apply_setting("p2p", value, "test", &settings));
  CHECK(settings.max_ctas == Settings().max_ctas);
  CHECK(settings.p2p);
  CHECK(digest(settings) == digest(Settings()));
  CHECK(settings.stats_seconds == 0);
  CHECK_FALSE(settings.debug);
}

TEST_CASE("later values replace earlier ones unless they are invalid or empty") {
  Settings settings = from_file("take = \"never\"\nscratch_bytes = 1\ndebug = \"INFO\"\nnccl_library = \"/first\"\n");
  const Settings before = settings;
  for (const auto& [key, value] : {std::pair{"take", "perhaps"}, {"scratch_bytes", "many"}, {"debug", "loud"}})
    apply_setting(key, value, "test", &settings);
  for (const std::string_view key : keys) apply_setting(key, "", "test", &settings);
  CHECK(settings.fallback_take == TakeMode::never);
  CHECK(settings.debug == before.debug);
  CHECK(settings.nccl_library == "/first");
  CHECK(digest(settings) == digest(before));
  apply_setting("scratch_bytes", "2", "test", &settings);
  apply_setting("debug", "trace", "test", &settings);
  apply_setting("nccl_library", "/second", "test", &settings);
  CHECK(settings.scratch_bytes == 2);
  CHECK(settings.debug == Level::trace);
  CHECK(settings.nccl_library == "/second");
  CHECK(settings.nccl_library_from == "test");
}

TEST_CASE("a file contains settings and rules") {
  const Settings settings = from_file(R"(
    codec = "window"
    off = ["send", "recv"]
    attach = "init"
    verify = true
    nvtx = false
    calibrate = false
    stats_seconds = 2.5
    scratch_bytes = 100_000_000
    debug = "info"
    nccl_library = "/there/libnccl.so.2"
    [[rule]]
    operation = "all_reduce"
    dtype = "bfloat16"
    max_bytes = 1048576
    take = "always"
    [[rule]]
    ranks = 4
    codec = "raw"
  )");
  CHECK(*settings.fallback_codec[NCAST_OP_REDUCE] == NCAST_CODEC_WINDOW);
  CHECK(settings.off[NCAST_OP_RECV]);
  CHECK(settings.attach == Attach::init);
  CHECK(settings.verify);
  CHECK_FALSE(settings.nvtx);
  CHECK(settings.calibrate == false);
  CHECK(settings.stats_seconds == 2.5);
  CHECK(settings.scratch_bytes == 100'000'000);
  CHECK(settings.debug == Level::info);
  CHECK(settings.nccl_library == "/there/libnccl.so.2");
  CHECK(settings.nccl_library_from == "test.toml:11");
  REQUIRE(settings.rules.size() == 2);
  CHECK(settings.rules[0].name == "rule 1");
  CHECK(settings.rules[0].line == 12);
  CHECK(settings.rules[0].operations == Operations().set(NCAST_OP_ALL_REDUCE));
  CHECK(settings.rules[0].dtypes == Dtypes().set(NCAST_BFLOAT16));
  CHECK(settings.rules[0].redops.all());
  CHECK(settings.rules[0].max_bytes == 1048576);
  CHECK(*settings.rules[0].take == TakeMode::always);
  CHECK(settings.rules[1].operations.all());
  CHECK(settings.rules[1].dtypes.all());
  CHECK(settings.rules[1].min_bytes == 0);
  CHECK(*settings.rules[1].ranks == 4);
  CHECK(*settings.rules[1].codec == NCAST_CODEC_RAW);
}

TEST_CASE("an invalid rule is ignored, and the warning has the line, the key and what is wrong") {
  const auto warned = [](const std::string& content) {
    const CollectedWarnings warnings(true);
    CHECK(from_file(content.c_str()).rules.empty());
    REQUIRE(warnings.messages().size() == 1);
    return warnings.messages()[0];
  };
  CHECK(warned("rule = 3") == "test.toml: rule is not a list of tables: write [[rule]]");
  for (const auto& [line, fault] : std::vector<std::pair<std::string, std::string>>{
           {"dtype = 'bf16'", "dtype must be a value type, such as bfloat16, or a list of them"},
           {"dtype = []", "dtype must be a value type, such as bfloat16, or a list of them"},
           {"operation = ['send', 3]", "operation must be an operation, such as all_reduce, or a list of them"},
           {"op = 'median'", "op must be a reduction, such as sum, or a list of them"},
           {"codec = 'rate:bits=7'", "codec 'rate:bits=7': bits is '7', not a number from 8 to 31"},
           {"codec = 3", "codec must be auto or a codec"},
           {"name = ''", "name must be a text"},
           {"min_bytes = -1", "min_bytes must be a number of bytes"},
           {"size = 3",
            "there is no key size (known: codec, dtype, name, op, operation, result_codec, take, communicator, "
            "max_bytes, "
            "min_bytes, ranks)"}})
    CHECK(warned("[[rule]]\n" + line) == "test.toml:2: in a rule, " + fault + ". The rule is ignored");
  for (const auto& [line, fault] : std::vector<std::pair<std::string, std::string>>{
           {"op = 'max'\noperation = 'send'", "op is only for operations that reduce, not for send"},
           {"min_bytes = 2\nmax_bytes = 1", "max_bytes is 1, but min_bytes is 2"},
           {"codec = 'int4'\nmax_bytes = 1",
            "max_bytes is 1, but min_bytes is 65536 if a rule with a codec that is not exact does not state it"},
           {"codec = 'int4'\ndtype = ['float32', 'int8', 'float64']", "int4 does not encode int8, float64"},
           {"codec = 'int8'\nresult_codec = 'int4'\noperation = 'send'",
            "result_codec is only for all_reduce, not for send"},
           {"codec = 'int8'\nresult_codec = 'abs'",
            "result_codec abs does not combine with codec int8: lossy codecs combine with raw, and those that "
            "quantise groups of values with each other"},
           {"codec = 'raw'\nresult_codec = 'int8'\nop = 'max'",
            "int8 is not exact, so its values cannot be reduced with max"},
           {"codec = 'int4'\nop = ['sum', 'prod', 'max']",
            "int4 is not exact, so its values cannot be reduced with prod, max"}})
    CHECK(warned("[[rule]]\n" + line) == "test.toml:1: in a rule, " + fault + ". The rule is ignored");
}

TEST_CASE("a rule with a codec that is not exact leaves out calls that it does not name") {
  const Rule lossy = from_file("[[rule]]\ncodec = 'int4'").rules.at(0);
  CHECK(lossy.operations == ~Operations().set(NCAST_OP_BROADCAST));
  CHECK(lossy.dtypes == Dtypes().set(NCAST_FLOAT16).set(NCAST_FLOAT32).set(NCAST_BFLOAT16));
  CHECK(lossy.redops == Redops().set(NCAST_SUM).set(NCAST_AVG));
  CHECK(lossy.min_bytes == 64 << 10);
  const Rule named = from_file(
                         "[[rule]]\ncodec = 'int4'\noperation = ['broadcast', 'reduce']\ndtype = 'float32'\nop = "
                         "'avg'\nmin_bytes = 0")
                         .rules.at(0);
  CHECK(named.operations == Operations().set(NCAST_OP_BROADCAST).set(NCAST_OP_REDUCE));
  CHECK(named.dtypes == Dtypes().set(NCAST_FLOAT32));
  CHECK(named.redops == Redops().set(NCAST_AVG));
  CHECK(named.min_bytes == 0);
  CHECK(codec_text(*from_file("[[rule]]\ncodec = 'int4:group=64'").rules.at(0).codec) == "int4:group=64");
  // An error budget counts as lossy, and is for the types of any lossy codec.
  const Rule budget = from_file("[[rule]]\ncodec = 'within:relative=0.02'").rules.at(0);
  CHECK(codec_text(*budget.codec) == "within:relative=0.02");
  CHECK(budget.operations == lossy.operations);
  CHECK(budget.redops == lossy.redops);
  CHECK(budget.min_bytes == lossy.min_bytes);
  CHECK((budget.dtypes & Dtypes().set(NCAST_FLOAT16).set(NCAST_BFLOAT16).set(NCAST_INT32)) ==
        Dtypes().set(NCAST_FLOAT16).set(NCAST_BFLOAT16));
  CHECK(codec_text(*from_file("[[rule]]\ncodec = 'quickreduce-int4!'").rules.at(0).codec) == "int4!");
}

TEST_CASE("a rule whose results have a lossy codec leaves out the same calls") {
  const Rule rule = from_file("[[rule]]\ncodec = 'raw'\nresult_codec = 'int8:group=64'").rules.at(0);
  CHECK(rule.is_lossy());
  CHECK(codec_text(*rule.result_codec) == "int8:group=64");
  CHECK(rule.redops == Redops().set(NCAST_SUM).set(NCAST_AVG));
  CHECK(rule.min_bytes == 64 << 10);
  CHECK(from_file("[[rule]]\nresult_codec = 'int8'").rules.empty());  // the codec would be auto
  Settings faulty = from_file("[[rule]]\ncodec = 'raw'\nresult_codec = 'int8'\n[[rule]]\nsize = 3");
  CHECK(faulty.rules.empty());
  const auto with_results = [](const char* codec) {
    return digest(from_file((std::string("[[rule]]\ncodec = 'int8'\nresult_codec = '") + codec + "'").c_str()));
  };
  CHECK(std::string(with_results("int4").difference(with_results("int6"))) == "rules");
}

TEST_CASE("a file with any error enables only exact codecs") {
  const char* const rules =
      "codec = 'int4'\n[[rule]]\ncodec = 'window'\noperation = 'send'\n[[rule]]\ncodec = 'int4'\n";
  CHECK(from_file(rules).rules.size() == 2);
  CHECK(from_file(rules).fallback_codec[NCAST_OP_SEND] == *parse_codec("int4").codec);
  for (const char* const error : {"[[rule]]\nsize = 3", "[[rules]]\ncodec = 'raw'", "[[plan]]\nuse = 3"}) {
    const CollectedWarnings warnings(true);
    const Settings settings = from_file((rules + std::string(error)).c_str());
    REQUIRE(settings.rules.size() == 1);
    CHECK(settings.rules[0].codec == NCAST_CODEC_WINDOW);
    CHECK_FALSE(settings.fallback_codec[NCAST_OP_SEND]);
    REQUIRE(warnings.messages().size() == 2);
    CHECK(warnings.messages()[1] ==
          "test.toml: no codec of the file that is not exact is used until these errors are corrected");
  }
}

TEST_CASE("patterns match names of communicators, and what torch puts before its ids") {
  for (const char* const pattern : {"mesh_dp:7", "mesh_dp", "mesh_*", "*", "mesh_[de]p", "mesh_dp:?"})
    CHECK(matches_name(pattern, "mesh_dp:7"));
  for (const char* const pattern : {"mesh", "mesh_tp", "7", "mesh_dp:77", ""})
    CHECK_FALSE(matches_name(pattern, "mesh_dp:7"));
  CHECK(matches_name("default_pg:split:0", "default_pg:split:0:f00d"));
  CHECK(matches_name("*", ""));
}

TEST_CASE("tables of plans state files and calls") {
  const Settings settings = from_file(
      "plans = \"/here\"\n[[plan]]\nfile = \"a.json\"\ndtype = [\"int8\", \"float32\"]\nop = \"avg\"\nmin_bytes = 1\n"
      "max_bytes = 9\nranks = 4\ncommunicator = \"x\"\nuse = \"always\"\n[[plan]]\nfile = \"/b.json\"\nuse = "
      "\"faster\"\n");
  CHECK(settings.plans == "/here");
  REQUIRE(settings.plan_rules.size() == 2);
  const PlanRule &first = settings.plan_rules[0], &second = settings.plan_rules[1];
  CHECK(first.file == "a.json");
  CHECK(first.dtypes == std::vector{NCAST_INT8, NCAST_FLOAT32});
  CHECK(first.redops == std::vector{NCAST_AVG});
  CHECK(first.min_bytes == 1);
  CHECK(first.max_bytes == 9);
  CHECK(first.ranks == 4);
  CHECK(first.communicator == "x");
  CHECK(first.always);
  CHECK(second.file == "/b.json");
  CHECK(second.dtypes.empty());
  CHECK_FALSE(second.always);
  for (const char* const wrong : {"file = 3", "dtype = []", "dtype = [\"int8\", \"bf16\"]", "op = \"median\"",
                                  "use = \"often\"", "ranks = -1", "ranks = 4294967298", "size = 3"})
    CHECK(from_file((std::string("[[plan]]\n") + wrong).c_str()).plan_rules.empty());
}

TEST_CASE("plans are only read from regular files") {
  char folder[] = "/tmp/narrowcast_settings_test_XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string pipe = std::string(folder) + "/pipe.json";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  Settings settings;
  settings.plan_rules.emplace_back().file = pipe;  // opening it would wait for a writer
  settings.plan_rules.emplace_back().file = folder;
  read_plan_files(&settings);
  CHECK(settings.plan_files.empty());
  CHECK(unlink(pipe.c_str()) == 0);
  CHECK(rmdir(folder) == 0);
}

TEST_CASE("a file that is not valid TOML is ignored") {
  CHECK(digest(from_file("codec = \"raw\"\ncodec = window\n")) == digest(Settings()));
}

TEST_CASE("different settings have different digests") {
  CHECK(digest(from_file("codec = \"raw\"")) != digest(from_file("codec = \"window\"")));
  CHECK(digest(from_file("take = \"never\"")) != digest(Settings()));
  CHECK(std::string(digest(from_file("take = \"never\"")).difference(digest(Settings()))) == "take");
  CHECK(std::string(digest(from_file("verify = true\np2p = false")).difference(digest(Settings()))) == "verify");
  CHECK(digest(Settings()).difference(digest(Settings())) == nullptr);
  CHECK(digest(from_file("attach = \"init\"")) != digest(Settings()));
  std::vector<SettingsDigest> of_rules;
  for (const char* const condition :
       {"ranks = 2", "ranks = 3", "operation = 'send'", "dtype = 'int8'", "op = 'max'", "op = 'min'", "codec = 'raw'",
        "take = 'never'", "communicator = 'x'", "min_bytes = 1"})
    of_rules.push_back(digest(from_file((std::string("[[rule]]\n") + condition).c_str())));
  for (size_t i = 0; i < of_rules.size(); ++i) CHECK(std::ranges::count(of_rules, of_rules[i]) == 1);
  // Names and lines of rules change no decision.
  CHECK(digest(from_file("\n[[rule]]\nname = 'x'\nranks = 2")) == digest(from_file("[[rule]]\nranks = 2")));
  CHECK(digest(from_file("scratch_bytes = 1")) != digest(Settings()));
  CHECK(digest(from_file("p2p = true")) != digest(from_file("p2p = false")));
  CHECK(digest(from_file("cost_model = \"here\"")) != digest(from_file("cost_model = \"there\"")));
  Settings one, other;
  one.plan_files = {{"here", "a plan", {{}}}};
  other.plan_files = {{"there", "a plan", {{}}}};
  CHECK(digest(one) == digest(other));  // paths may differ
  CHECK(digest(one) != digest(Settings()));
  other.plan_files[0].rules[0].always = true;
  CHECK(digest(one) != digest(other));
  other.plan_files[0] = {"there", "another plan", {{}}};
  CHECK(digest(one) != digest(other));
  // The minimum over all ranks counts.
  CHECK(digest(from_file("max_ctas = 8")) == digest(Settings()));
  // Statistics, logging and the path of NCCL may differ between ranks.
  CHECK(digest(from_file("stats = \"here\"\ndebug = \"INFO\"\nnccl_library = \"/there\"")) == digest(Settings()));
}
