// The environment sets the options that a configuration leaves open. No GPU is needed.
#include "select/options.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "doctest/doctest.h"
#include "narrowcast/explain.h"
#include "support/environment.h"
#include "support/ranks.h"

namespace narrowcast::select {
namespace {

using narrowcast::testing::Environment;

ncast_comm_config open_config() {
  ncast_comm_config config;
  ncast_comm_config_init(&config);
  return config;
}

Options options_of(const ncast_comm_config& config) {
  Options options;
  REQUIRE(Options::of(config, &options) == NCAST_OK);
  return options;
}

// The file of a cost model.
class ModelFile {
 public:
  explicit ModelFile(const char* name)
      : path_(std::filesystem::temp_directory_path() / (name + std::to_string(getpid()))) {}
  ~ModelFile() { std::filesystem::remove(path_); }
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;

  std::string path() const { return path_; }
  void write(const std::string& lines) const {
    std::FILE* const file = std::fopen(path_.c_str(), "w");
    REQUIRE(file != nullptr);
    std::fputs(("narrowcast-costs 2 a machine\n" + lines).c_str(), file);
    std::fclose(file);
  }
  void write_times(int microseconds) const {
    const std::string time = " 1000:" + std::to_string(microseconds) + "\n";
    write("all_gather 2 nvlink packets" + time + "all_gather 2 nvlink blocks:raw" + time +
          "all_gather 2 nvlink blocks:window" + time);
  }

 private:
  std::filesystem::path path_;
};

ncast_status explain(ncast_operation operation, const ncast_comm_config* config, ncast_dtype dtype, uint64_t count,
                     ncast_codec codec, ncast_decision* decision) {
  ncast_explanation* explanation = nullptr;
  const ncast_status status = ncast_explain(operation, count, dtype, codec, 2, config, &explanation);
  if (status != NCAST_OK) return status;
  decision->struct_bytes = sizeof *decision;
  CHECK(ncast_explanation_decision(explanation, decision) == NCAST_OK);
  decision->sentence = nullptr;
  ncast_explanation_destroy(explanation);
  return NCAST_OK;
}

// The time of an all-gather, which explanations and predictors agree on.
double microseconds_of(const ncast_comm_config* config) {
  ncast_decision said = {};
  ncast_comparison compared = {};
  compared.struct_bytes = sizeof compared;
  REQUIRE(explain(NCAST_OP_ALL_GATHER, config, NCAST_BFLOAT16, 500, NCAST_CODEC_RAW, &said) == NCAST_OK);
  ncast_predictor* predictor = nullptr;
  REQUIRE(ncast_predictor_create(2, config, &predictor) == NCAST_OK);
  CHECK(ncast_predictor_compare(predictor, NCAST_OP_ALL_GATHER, 500, NCAST_BFLOAT16, NCAST_CODEC_RAW, 1, &compared) ==
        NCAST_OK);
  ncast_predictor_destroy(predictor);
  CHECK(said.microseconds == compared.microseconds);
  return compared.microseconds;
}

TEST_CASE("a variable sets the option that a configuration leaves open") {
  const auto check = [](const char* name, const auto& values, auto member) {
    for (const auto& [text, value] : values) {
      const Environment set(name, text);
      CHECK(options_of(open_config()).*member == value);
    }
  };
  check("NARROWCAST_MAX_CTAS", std::map<std::string, uint32_t>{{"1", 1}, {"64", 64}, {"auto", 64}, {"", 64}},
        &Options::max_ctas);
  check("NARROWCAST_SHARED_KIB",
        std::map<std::string, uint32_t>{{"64", 64 << 10}, {"99", 99 << 10}, {"227", 227 << 10}, {"", 227 << 10}},
        &Options::shared_bytes);
  check("NARROWCAST_P2P", std::map<std::string, bool>{{"0", true}, {"1", false}, {"", false}}, &Options::over_host);
  check("NARROWCAST_PATH",
        std::map<std::string, ForcedTransport>{{"", ForcedTransport::none},
                                               {"packets", ForcedTransport::packets},
                                               {"packets:one_shot", ForcedTransport::one_shot},
                                               {"packets:two_shot", ForcedTransport::two_shot},
                                               {"blocks", ForcedTransport::blocks}},
        &Options::transport);
  using environment::Levels;
  check("NARROWCAST_LEVELS",
        std::map<std::string, Levels>{
            {"1", Levels::one}, {"2", Levels::two}, {"auto", Levels::automatic}, {"", Levels::automatic}},
        &Options::levels);
  const Environment ctas("NARROWCAST_MAX_CTAS", "7");
  const Environment p2p("NARROWCAST_P2P", "0");
  ncast_comm_config config = open_config();
  config.max_ctas = 9;
  config.p2p = 1;
  CHECK(options_of(config).max_ctas == 9);
  CHECK_FALSE(options_of(config).over_host);
  const Environment path("NARROWCAST_PATH", "blocks");
  ncast_decision said = {};
  CHECK(explain(NCAST_OP_ALL_REDUCE, nullptr, NCAST_INT8, 1, NCAST_CODEC_AUTO, &said) == NCAST_OK);
  CHECK(std::string(said.candidate) == "blocks:raw");
}

TEST_CASE("invalid options are rejected") {
  const auto rejected = [](const ncast_comm_config& config, const char* why) {
    Options options;
    CHECK(Options::of(config, &options) == NCAST_INVALID_ARGUMENT);
    CHECK(std::string(ncast_last_error()) == why);
    ncast_decision said = {};
    CHECK(explain(NCAST_OP_SEND, &config, NCAST_INT8, 1, NCAST_CODEC_RAW, &said) == NCAST_INVALID_ARGUMENT);
    CHECK(std::string(ncast_last_error()) == std::string("ncast_explain: ") + why);
  };
  ncast_comm_config config = open_config();
  config.max_ctas = 65;
  rejected(config, "max_ctas is 65, not 0 to 64");
  config = open_config();
  config.max_collective_ctas = 65;
  rejected(config, "max_collective_ctas is 65, not 0 to 64");
  config = open_config();
  config.p2p = 2;
  rejected(config, "p2p is 2, not -1, 0 or 1");
  const std::tuple<const char*, const char*, std::vector<const char*>> variables[] = {
      {"NARROWCAST_MAX_CTAS", "auto or a number from 1 to 64", {"0", "65", "-3", "x", "8x", " 8", "4294967297"}},
      {"NARROWCAST_SHARED_KIB", "a number from 64 to 227", {"63", "228", "99.5", "99 KiB", "-99", "4294967395"}},
      {"NARROWCAST_P2P", "0 or 1", {"2", "no", "0 ", "true"}},
      {"NARROWCAST_LEVELS", "auto, 1 or 2", {"0", "3", "two", "2 "}},
      {"NARROWCAST_PATH", "packets, packets:one_shot, packets:two_shot or blocks", {"tubes", "packets:"}},
  };
  for (const auto& [name, valid, values] : variables) {
    for (const char* const value : values) {
      const Environment set(name, value);
      rejected(open_config(), (std::string(name) + " is '" + value + "', not " + valid).c_str());
    }
  }
  {
    const Environment ctas("NARROWCAST_MAX_CTAS", "many"), p2p("NARROWCAST_P2P", "perhaps");
    config = open_config();
    config.max_ctas = 9;
    config.p2p = 0;
    CHECK(options_of(config).max_ctas == 9);  // a variable that is overridden is not read
    CHECK(options_of(config).over_host);
    ncast_unique_id id;
    CHECK(ncast_get_unique_id(&id) == NCAST_OK);
    config = open_config();
    config.backend = NCAST_BACKEND_HOST;
    ncast_comm* comm = nullptr;
    CHECK(ncast_comm_create(&comm, 1, &id, 0, &config) == NCAST_INVALID_ARGUMENT);
    CHECK(std::string(ncast_last_error()) ==
          "ncast_comm_create: NARROWCAST_MAX_CTAS is 'many', not auto or a number from 1 to 64");
  }
  config.struct_bytes = 8;
  ncast_predictor* predictor = nullptr;
  CHECK(ncast_predictor_create(2, &config, &predictor) == NCAST_INVALID_ARGUMENT);
  CHECK(std::string(ncast_last_error()) ==
        "ncast_predictor_create: config.struct_bytes is 8, not the size of the struct: was it initialised?");
}

TEST_CASE("calls are predicted by the cost model of the options") {
  const ModelFile of_environment("options_test.environment."), given("options_test.given.");
  CHECK(options_of(open_config()).cost_model.empty());
  const double built_in = microseconds_of(nullptr);
  CHECK(built_in > 0);
  of_environment.write_times(1000);
  given.write_times(2000);
  const Environment set("NARROWCAST_COST_MODEL", of_environment.path());
  CHECK(microseconds_of(nullptr) == 1000);
  ncast_comm_config config = open_config();
  const std::string path = given.path();
  config.cost_model = path.c_str();
  CHECK(microseconds_of(&config) == 2000);
  config.cost_model = "";
  CHECK(microseconds_of(&config) == built_in);
}

TEST_CASE("the error for a model that cannot be loaded names the setting") {
  const ModelFile file("options_test.");
  const auto error = [](const ncast_comm_config* config) {
    ncast_decision said = {};
    CHECK(explain(NCAST_OP_SEND, config, NCAST_INT8, 1, NCAST_CODEC_RAW, &said) == NCAST_INVALID_ARGUMENT);
    return std::string(ncast_last_error());
  };
  const std::string cannot = file.path() + " cannot be read: No such file or directory", path = file.path();
  ncast_comm_config config = open_config();
  config.cost_model = path.c_str();
  CHECK(error(&config) == "ncast_explain: cost_model: " + cannot);
  const Environment set("NARROWCAST_COST_MODEL", path);
  CHECK(error(nullptr) == "ncast_explain: NARROWCAST_COST_MODEL: " + cannot);
  const narrowcast::testing::TimeLimit limit(20);
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  CHECK(error(nullptr) ==
        "ncast_explain: NARROWCAST_COST_MODEL: " + path + " cannot be read: it is not a regular file");
  REQUIRE(unlink(path.c_str()) == 0);
  file.write("nonsense\n");
  CHECK(error(nullptr) == "ncast_explain: " + path + ", line 2: 'nonsense' is not an operation that is measured");
}

}  // namespace
}  // namespace narrowcast::select
