#include "nccl/policy/decision.h"

#include <string>
#include <tuple>

#include "doctest/doctest.h"
#include "nccl/policy/cost_prediction.h"
#include "nccl/settings/text.h"

using namespace narrowcast::nccl;

namespace {

Call call_of(Operation operation, size_t count = 1000, int dtype = NCAST_BFLOAT16) {
  return {.function = Function::AllReduce, .operation = operation, .count = count, .dtype = dtype};
}

// Predicts the same times for all calls.
struct Times : Predictor {
  double engine_time, nccl_time;
  Times(double on_engine, double in_nccl) : engine_time(on_engine), nccl_time(in_nccl) {}
  bool compare(const CallShape&, ncast_codec, ncast_comparison* comparison) const override {
    comparison->microseconds = engine_time;
    comparison->nccl_microseconds = nccl_time;
    comparison->faster = engine_time < nccl_time;
    comparison->reason = engine_time < nccl_time ? nullptr : "the library's reason";
    return engine_time != 0;
  }
};
const Times faster(1, 2), slower(2, 1), alone(1, 0), unknown(0, 0);

Settings with(const char* key, const char* value) {
  Settings settings;
  apply_setting(key, value, "test", &settings);
  return settings;
}

}  // namespace

TEST_CASE("calls that are predicted to be faster are executed, and others forwarded with a reason") {
  const auto decision = [](const Predictor& predictor) {
    return decide({}, call_of(NCAST_OP_ALL_GATHER), {2, ""}, predictor);
  };
  CHECK(decision(faster).use_engine);
  CHECK(decision(faster).why_forwarded == nullptr);
  const auto saved = [](const Predictor& predictor) {
    return saved_microseconds(shape_of(call_of(NCAST_OP_ALL_GATHER), NCAST_OP_ALL_GATHER, 2, false), NCAST_CODEC_AUTO,
                              predictor);
  };
  CHECK(saved(faster) == 1);
  CHECK(saved(slower) == -1);
  CHECK_FALSE(saved(alone));
  CHECK_FALSE(saved(unknown));
  for (const Times* times : {&slower, &alone, &unknown}) {
    CHECK_FALSE(decision(*times).use_engine);
    CHECK(doctest::String(decision(*times).why_forwarded).size() > 10);
  }
}

TEST_CASE("calls for which a plan is always used are executed unless a setting forwards them") {
  struct AlwaysAPlan : Times {
    AlwaysAPlan() : Times(0, 0) {}
    bool compare(const CallShape& shape, ncast_codec codec, ncast_comparison* comparison) const override {
      Times::compare(shape, codec, comparison);
      comparison->plan = "mine";
      comparison->always = shape.redop == NCAST_MAX && shape.root == 0 ? 1 : 0;
      return true;
    }
  };
  const AlwaysAPlan plan;
  Call call = call_of(NCAST_OP_ALL_REDUCE);
  CHECK_FALSE(decide({}, call, {2, ""}, plan).use_engine);
  call.redop = NCAST_MAX;
  CHECK(decide({}, call, {2, ""}, plan).use_engine);
  CHECK_FALSE(decide(with("off", "all_reduce"), call, {2, ""}, plan).use_engine);
  CHECK_FALSE(decide(with("take", "never"), call, {2, ""}, plan).use_engine);
  call.operation = NCAST_OP_REDUCE;
  call.peer = 1;
  CHECK_FALSE(decide({}, call, {2, ""}, plan).use_engine);
}

TEST_CASE("a send and its receive get the same decision") {
  for (const char* off : {"send", "recv"}) {
    CHECK_FALSE(decide(with("off", off), call_of(NCAST_OP_SEND), {2, ""}, faster).use_engine);
    CHECK_FALSE(decide(with("off", off), call_of(NCAST_OP_RECV), {2, ""}, faster).use_engine);
  }
  CHECK(decide(with("off", "gather"), call_of(NCAST_OP_RECV), {2, ""}, faster).use_engine);
  const Settings settings = with("codec", "send=window,recv=raw");
  CHECK(decide(settings, call_of(NCAST_OP_SEND), {2, ""}, slower).codec == NCAST_CODEC_WINDOW);
  CHECK(decide(settings, call_of(NCAST_OP_RECV), {2, ""}, slower).codec == NCAST_CODEC_WINDOW);
  Call to_last = call_of(NCAST_OP_SEND);
  to_last.peer = 1;
  CHECK(shape_of(to_last, NCAST_OP_SEND, 2, false).root == 0);
}

TEST_CASE("calls that the engine cannot execute are forwarded even with `always`") {
  const Settings settings = with("take", "always");
  Call by_user = call_of(NCAST_OP_ALL_REDUCE);
  by_user.redop = first_user_reduction;
  CHECK_FALSE(decide(settings, by_user, {2, ""}, slower).use_engine);
  CHECK_FALSE(decide(settings, call_of(NCAST_OP_ALL_REDUCE, 0), {2, ""}, slower).use_engine);
  Call with_config = call_of(NCAST_OP_ALL_REDUCE);
  with_config.config = &with_config;
  CHECK_FALSE(decide(settings, with_config, {2, ""}, slower).use_engine);
  CHECK(decide(settings, call_of(NCAST_OP_ALL_REDUCE), {2, ""}, slower).use_engine);
}

TEST_CASE("the environment takes precedence over rules, and the first matching rule applies") {
  Settings settings = with("codec", "all_gather=raw");
  apply_file(
      "[[rule]]\noperation = \"all_gather\"\ncodec = \"window\"\ntake = \"always\"\n"
      "[[rule]]\nmin_bytes = 2000\nmax_bytes = 2000\ndtype = \"bfloat16\"\ntake = \"never\"\n"
      "[[rule]]\ntake = \"always\"\n",
      "test.toml", &settings);
  const Decision gather = decide(settings, call_of(NCAST_OP_ALL_GATHER), {8, ""}, slower);
  CHECK(gather.use_engine);
  CHECK(gather.codec == NCAST_CODEC_RAW);
  CHECK_FALSE(decide(settings, call_of(NCAST_OP_BROADCAST), {8, ""}, slower).use_engine);
  CHECK(decide(settings, call_of(NCAST_OP_BROADCAST, 1000, NCAST_FLOAT16), {8, ""}, slower).use_engine);
  CHECK(decide(settings, call_of(NCAST_OP_BROADCAST, 1001), {8, ""}, slower).use_engine);
  apply_setting("take", "never", "test", &settings);
  CHECK_FALSE(decide(settings, call_of(NCAST_OP_BROADCAST, 1001), {8, ""}, slower).use_engine);
}

TEST_CASE("what the first matching rule does not set comes from the top-level keys and not from a later rule") {
  Settings settings;
  apply_file(
      "take = \"never\"\ncodec = \"raw\"\n[[rule]]\nmax_bytes = 100\ntake = \"always\"\n"
      "[[rule]]\ncodec = \"window\"\n[[rule]]\ntake = \"always\"\n",
      "test.toml", &settings);
  const Decision large = decide(settings, call_of(NCAST_OP_BROADCAST), {8, ""}, slower);
  CHECK_FALSE(large.use_engine);
  CHECK(large.codec == NCAST_CODEC_WINDOW);
  const Decision small = decide(settings, call_of(NCAST_OP_BROADCAST, 1), {8, ""}, slower);
  CHECK(small.use_engine);
  CHECK(small.codec == NCAST_CODEC_RAW);
}

TEST_CASE("top-level keys of a file apply if no rule matches") {
  Settings settings;
  apply_file(
      "codec = \"raw\"\ntake = \"never\"\noff = [\"gather\"]\n"
      "[[rule]]\noperation = \"all_gather\"\ncodec = \"window\"\ntake = \"always\"\n"
      "[[rule]]\noperation = \"recv\"\ntake = \"always\"\n",
      "test.toml", &settings);
  const auto decided = [&](Operation operation) { return decide(settings, call_of(operation), {8, ""}, slower); };
  CHECK(decided(NCAST_OP_ALL_GATHER).use_engine);
  CHECK(decided(NCAST_OP_ALL_GATHER).codec == NCAST_CODEC_WINDOW);
  CHECK_FALSE(decided(NCAST_OP_BROADCAST).use_engine);
  CHECK(decided(NCAST_OP_BROADCAST).codec == NCAST_CODEC_RAW);
  CHECK(decided(NCAST_OP_SEND).use_engine);
  CHECK(decided(NCAST_OP_SEND).codec == NCAST_CODEC_RAW);
  // The environment, where `off` replaces the whole list.
  apply_setting("take", "always", "test", &settings);
  CHECK_FALSE(decided(NCAST_OP_GATHER).use_engine);
  apply_setting("off", "scatter", "test", &settings);
  CHECK(decided(NCAST_OP_GATHER).use_engine);
  CHECK_FALSE(decided(NCAST_OP_SCATTER).use_engine);
  apply_setting("off", "0", "test", &settings);
  CHECK(decided(NCAST_OP_SCATTER).use_engine);
}

TEST_CASE("a rule can match communicators by name") {
  Settings settings;
  apply_file("[[rule]]\ncommunicator = \"tensor\"\ntake = \"always\"\n[[rule]]\ntake = \"never\"\n", "test.toml",
             &settings);
  CHECK(decide(settings, call_of(NCAST_OP_BROADCAST), {4, "tensor"}, slower).use_engine);
  CHECK_FALSE(decide(settings, call_of(NCAST_OP_BROADCAST), {4, "data"}, slower).use_engine);
  CHECK_FALSE(decide(settings, call_of(NCAST_OP_BROADCAST), {4, ""}, slower).use_engine);
}

TEST_CASE("a codec that is not exact is used only for calls that a setting names") {
  const auto codec_of_call = [](const Settings& settings, Operation operation, uint64_t bytes = 1 << 20,
                                int dtype = NCAST_BFLOAT16, int redop = NCAST_SUM) {
    Call call = call_of(operation, bytes / value_bytes(dtype), dtype);
    call.redop = redop;
    const Decision decision = decide(settings, call, {4, ""}, faster);
    return codec_text(decision.codec) + " by " + (decision.codec_from == nullptr ? "default" : decision.codec_from);
  };
  Settings rule, file;
  const Settings variable = with("codec", "int6:group=64!");
  apply_file("[[rule]]\nname = 'all'\ncodec = 'int6:group=64!'\n[[rule]]\ncodec = 'window'", "test.toml", &rule);
  apply_file("codec = 'int6:group=64!'", "test.toml", &file);
  for (const auto& [settings, name, otherwise] :
       {std::tuple{static_cast<const Settings*>(&rule), "all", "window by rule 2"},
        {&variable, "NARROWCAST_CODEC", "auto by default"},
        {&file, "codec of the file", "auto by default"}}) {
    const std::string lossy = std::string("int6:group=64! by ") + name;
    for (const Operation operation : {NCAST_OP_ALL_GATHER, NCAST_OP_ALL_REDUCE, NCAST_OP_SEND, NCAST_OP_RECV})
      CHECK(codec_of_call(*settings, operation) == lossy);
    CHECK(codec_of_call(*settings, NCAST_OP_ALL_REDUCE, 1 << 20, NCAST_FLOAT32, NCAST_AVG) == lossy);
    CHECK(codec_of_call(*settings, NCAST_OP_ALL_GATHER, least_lossy_bytes) == lossy);
    CHECK(codec_of_call(*settings, NCAST_OP_ALL_GATHER, least_lossy_bytes - 2) == otherwise);
    CHECK(codec_of_call(*settings, NCAST_OP_BROADCAST) == otherwise);
    for (const int dtype : {NCAST_INT32, NCAST_UINT8, NCAST_FLOAT64})
      CHECK(codec_of_call(*settings, NCAST_OP_ALL_GATHER, 1 << 20, dtype) == otherwise);
    for (const int redop : {NCAST_MIN, NCAST_MAX, NCAST_PROD})
      CHECK(codec_of_call(*settings, NCAST_OP_REDUCE, 1 << 20, NCAST_BFLOAT16, redop) == otherwise);
  }
  Settings named;
  apply_file("[[rule]]\ncodec = 'int8'\noperation = ['broadcast', 'reduce']\nop = 'avg'\nmin_bytes = 1\nmax_bytes = 99",
             "test.toml", &named);
  CHECK(codec_of_call(named, NCAST_OP_BROADCAST, 98) == "int8 by rule 1");
  CHECK(codec_of_call(named, NCAST_OP_REDUCE, 98, NCAST_BFLOAT16, NCAST_AVG) == "int8 by rule 1");
  CHECK(codec_of_call(named, NCAST_OP_REDUCE, 98) == "auto by default");
  CHECK(codec_of_call(with("codec", "broadcast=int8"), NCAST_OP_BROADCAST) == "int8 by NARROWCAST_CODEC");
}

TEST_CASE("results have a codec of their own in all-reduces only") {
  Settings settings;
  apply_file("[[rule]]\ncodec = 'int8'\nresult_codec = 'int4'\nmin_bytes = 0", "test.toml", &settings);
  const auto results_of = [&](Operation operation) {
    return decide(settings, call_of(operation, 1 << 20, NCAST_BFLOAT16), {4, ""}, faster).result_codec;
  };
  CHECK(results_of(NCAST_OP_ALL_REDUCE) == NCAST_CODEC_INT4);
  CHECK_FALSE(results_of(NCAST_OP_REDUCE_SCATTER));
}

TEST_CASE("invalid types and reductions match no rule") {
  Settings settings = with("take", "always");
  apply_file("[[rule]]\ncodec = 'window'", "test.toml", &settings);
  for (const int invalid : {-1, 12, 99}) {
    Call call = call_of(NCAST_OP_ALL_REDUCE, 1000, invalid);
    CHECK_FALSE(decide(settings, call, {4, ""}, faster).use_engine);
    if (invalid > 0) continue;
    call = call_of(NCAST_OP_ALL_REDUCE);
    call.redop = invalid;
    CHECK_FALSE(decide(settings, call, {4, ""}, faster).use_engine);
  }
}

TEST_CASE("predictions depend on whether windows are registered") {
  struct FasterWithoutWindows final : Predictor {
    bool compare(const CallShape& shape, ncast_codec, ncast_comparison* comparison) const override {
      comparison->faster = shape.has_windows ? 0 : 1;
      comparison->reason = shape.has_windows ? "NCCL is faster with windows" : nullptr;
      return true;
    }
  };
  const auto decided = [](bool has_windows) {
    return decide({}, call_of(NCAST_OP_ALL_GATHER), {2, "", has_windows}, FasterWithoutWindows());
  };
  CHECK(decided(false).use_engine);
  CHECK_FALSE(decided(true).use_engine);
  CHECK(doctest::String(decided(true).why_forwarded) == "NCCL is faster with windows");
}

TEST_CASE("predictions use the CTAs of a communicator, and else those of the settings") {
  static uint32_t used, used_by_collectives;
  Engine engine = {};
  engine.ncast_comm_config_defaults = [](ncast_comm_config* config, size_t bytes) {
    ncast_comm_config_defaults(config, bytes);
  };
  engine.ncast_predictor_create = [](int, const ncast_comm_config* config, ncast_predictor**) {
    used = config->max_ctas;
    used_by_collectives = config->max_collective_ctas;
    return NCAST_OK;
  };
  ncast_predictor* predictor = nullptr;
  for (const uint32_t max_ctas : {0u, 5u}) {
    REQUIRE(create_predictor(engine, 2, max_ctas, "", &predictor) == NCAST_OK);
    CHECK(used == (max_ctas == 0 ? narrowcast::environment::most_ctas : 5));
    CHECK((used_by_collectives == 0) == (max_ctas == 5));
  }
  engine.ncast_predictor_create = [](int, const ncast_comm_config*, ncast_predictor**) { return NCAST_UNSUPPORTED; };
  CHECK(create_predictor(engine, 2, 0, "", &predictor) == NCAST_UNSUPPORTED);
}
