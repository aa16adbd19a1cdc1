// Predictors compare the decisions that explanations print and calls run by. No GPU is needed.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "doctest/doctest.h"
#include "narrowcast/explain.h"
#include "narrowcast/plan.h"
#include "narrowcast/reduction.h"
#include "plan/handle.h"
#include "support/environment.h"
#include "support/last_error.h"
#include "support/plans.h"

namespace narrowcast {
namespace {

using Predictor = std::unique_ptr<ncast_predictor, void (*)(ncast_predictor*)>;

Predictor predictor_for(int ranks, const ncast_comm_config* config = nullptr) {
  ncast_predictor* made = nullptr;
  REQUIRE(ncast_predictor_create(ranks, config, &made) == NCAST_OK);
  return {made, ncast_predictor_destroy};
}

ncast_comparison compared(const ncast_predictor* predictor, ncast_operation operation, uint64_t count,
                          int with_windows) {
  ncast_comparison comparison = {};
  comparison.struct_bytes = sizeof comparison;
  REQUIRE(ncast_predictor_compare(predictor, operation, count, NCAST_BFLOAT16, NCAST_CODEC_AUTO, with_windows,
                                  &comparison) == NCAST_OK);
  return comparison;
}

// With these lines as its cost model.
Predictor predictor_with_costs(const std::string& lines) {
  const auto path = std::filesystem::temp_directory_path() / ("predictor_test." + std::to_string(getpid()) + ".costs");
  std::ofstream(path) << "narrowcast-costs 2 a machine\nkernels unknown\n" << lines;
  const std::string name = path.string();
  ncast_comm_config config;
  ncast_comm_config_init(&config);
  config.cost_model = name.c_str();
  Predictor predictor = predictor_for(2, &config);
  std::filesystem::remove(path);
  return predictor;
}

double explained_microseconds(ncast_operation operation, uint64_t count, int ranks) {
  ncast_explanation* explanation = nullptr;
  ncast_decision decision = {};
  decision.struct_bytes = sizeof decision;
  REQUIRE(ncast_explain(operation, count, NCAST_BFLOAT16, NCAST_CODEC_AUTO, ranks, nullptr, &explanation) == NCAST_OK);
  CHECK(ncast_explanation_decision(explanation, &decision) == NCAST_OK);
  ncast_explanation_destroy(explanation);
  return decision.microseconds;
}

TEST_CASE("a comparison has the time of the explanation, also when it is repeated") {
  const Predictor predictor = predictor_for(2);
  for (int round = 0; round < 2; ++round) {
    for (const ncast_operation operation : {NCAST_OP_ALL_GATHER, NCAST_OP_ALL_REDUCE, NCAST_OP_BROADCAST}) {
      for (const uint64_t count : {uint64_t{512}, uint64_t{64} << 20}) {
        for (const int with_windows : {0, 1}) {
          const ncast_comparison comparison = compared(predictor.get(), operation, count, with_windows);
          CHECK(comparison.microseconds == explained_microseconds(operation, count, 2));
          CHECK((comparison.faster != 0) == (comparison.microseconds < comparison.nccl_microseconds));
          CHECK((comparison.reason == nullptr) == (comparison.faster != 0));
        }
      }
    }
  }
}

TEST_CASE("calls are compared with NCCL's fastest variant if windows are registered, and else with its default") {
  const Predictor predictor = predictor_with_costs(
      "all_gather 2 nvlink blocks:raw 2:6\nall_gather 2 nvlink blocks:window 2:6\n"
      "all_gather 2 nvlink nccl 2:5\nall_gather 2 nvlink nccl:default 2:7\n");
  const ncast_comparison without = compared(predictor.get(), NCAST_OP_ALL_GATHER, 1, 0);
  CHECK(without.faster == 1);
  CHECK(without.nccl_microseconds == 7);
  const ncast_comparison with = compared(predictor.get(), NCAST_OP_ALL_GATHER, 1, 1);
  CHECK(with.faster == 0);
  CHECK(with.nccl_microseconds == 5);
  ncast_explanation* explanation = nullptr;
  ncast_plan_call call = {};
  call.struct_bytes = sizeof call;
  call.operation = NCAST_OP_ALL_GATHER;
  call.count = 1;
  call.dtype = NCAST_BFLOAT16;
  REQUIRE(ncast_predictor_explain_call(predictor.get(), &call, &explanation) == NCAST_OK);
  ncast_decision decision = {};
  decision.struct_bytes = sizeof decision;
  CHECK(ncast_explanation_decision(explanation, &decision) == NCAST_OK);
  CHECK(std::string(decision.sentence)
            .ends_with("Predicted: 6.0 us blocks:raw, 6.0 us blocks:window, 5.0 us nccl, 7.0 us nccl:default."));
  ncast_explanation_destroy(explanation);
}

// Uses a plan for all-gathers of int32.
void use_plan(const Predictor& predictor, const char* builder, int always) {
  ncast_plan_request request = {};
  request.struct_bytes = sizeof request;
  request.operation = NCAST_OP_ALL_GATHER;
  request.ranks = 2;
  ncast_plan* plan = nullptr;
  REQUIRE(ncast_plan_build(builder, &request, &plan) == NCAST_OK);
  ncast_plan_use use = {};
  use.struct_bytes = sizeof use;
  use.always = always;
  CHECK(ncast_predictor_use_plan(predictor.get(), plan, NCAST_INT32, NCAST_SUM, &use) == NCAST_OK);
  ncast_plan_destroy(plan);
}

TEST_CASE("an explanation has the codec of the results, and the bound and costs of both") {
  const Predictor predictor = predictor_for(4);
  const double ones[] = {1, 1, 1, 1};
  const auto explained = [&](ncast_codec codec, const ncast_codec* result_codec, const auto& check) {
    ncast_plan_call call = {};
    call.struct_bytes = sizeof call;
    call.operation = NCAST_OP_ALL_REDUCE;
    call.count = 1 << 24;
    call.dtype = NCAST_BFLOAT16;
    call.codec = codec;
    call.result_codec = result_codec;
    ncast_explanation* explanation = nullptr;
    REQUIRE(ncast_predictor_explain_call(predictor.get(), &call, &explanation) == NCAST_OK);
    ncast_decision decision = {};
    decision.struct_bytes = sizeof decision;
    CHECK(ncast_explanation_decision(explanation, &decision) == NCAST_OK);
    check(decision, std::string(decision.sentence));
    ncast_explanation_destroy(explanation);
  };
  constexpr ncast_codec raw = NCAST_CODEC_RAW, int8 = NCAST_CODEC_INT8 | NCAST_CODEC_FORCED, int4 = NCAST_CODEC_INT4;
  explained(int8, &int4, [&](const ncast_decision& said, const std::string& sentence) {
    CHECK(said.codec == NCAST_CODEC_INT8);
    CHECK(said.result_codec == int4);
    CHECK(said.error_bound == ncast_all_reduce_error_bound(NCAST_BFLOAT16, NCAST_SUM, int8, int4, 4, ones));
    CHECK(sentence.find(". Values are sent with codec int8, and results with codec int4: ") != std::string::npos);
    CHECK(sentence.find(" The call allows int8! for contributions and int4 for results.") != std::string::npos);
  });
  explained(raw, &int8, [&](const ncast_decision& said, const std::string& sentence) {
    CHECK(said.codec == raw);
    CHECK(said.result_codec == NCAST_CODEC_INT8);
    CHECK(said.error_bound == ncast_all_reduce_error_bound(NCAST_BFLOAT16, NCAST_SUM, raw, int8, 4, ones));
    CHECK(std::string(said.candidate) == "blocks:int8");
    CHECK(said.microseconds > 0);
    CHECK(sentence.find(" us blocks:int8") != std::string::npos);
    CHECK(sentence.find(" The call allows raw for contributions and int8! for results.") != std::string::npos);
  });
  explained(int8, &int8, [&](const ncast_decision& said, const std::string& sentence) {
    CHECK(said.result_codec == NCAST_CODEC_INT8);
    CHECK(sentence.find("results with") == std::string::npos);
  });
  explained(raw, nullptr, [&](const ncast_decision& said, const std::string&) { CHECK(said.result_codec == raw); });
}

// What a predictor says about an all-gather of 1000 values.
struct Said {
  std::string plan, sentence, alternative;
  bool alternative_runs;
  ncast_comparison comparison;
};
Said said_of(const Predictor& predictor, ncast_dtype dtype) {
  ncast_plan_call call = {};
  call.struct_bytes = sizeof call;
  call.operation = NCAST_OP_ALL_GATHER;
  call.count = 1000;
  call.codec = NCAST_CODEC_RAW;
  call.dtype = dtype;
  ncast_explanation* explanation = nullptr;
  REQUIRE(ncast_predictor_explain_call(predictor.get(), &call, &explanation) == NCAST_OK);
  ncast_decision decision = {};
  decision.struct_bytes = sizeof decision;
  CHECK(ncast_explanation_decision(explanation, &decision) == NCAST_OK);
  ncast_candidate last = {};
  last.struct_bytes = sizeof last;
  CHECK(ncast_explanation_candidate(explanation, ncast_explanation_candidates(explanation) - 1, &last) == NCAST_OK);
  REQUIRE(last.plan != nullptr);
  CHECK(std::string(last.plan) == "all_gather ring");
  Said said{decision.plan, decision.sentence, last.name, last.why_not == nullptr, {}};
  ncast_explanation_destroy(explanation);
  said.comparison.struct_bytes = sizeof said.comparison;
  CHECK(ncast_predictor_compare_call(predictor.get(), &call, 0, &said.comparison) == NCAST_OK);
  return said;
}

TEST_CASE("explanations and comparisons of a predictor have the plans that it uses") {
  const Predictor predictor = predictor_for(2);
  use_plan(predictor, "one_shot", 0);
  use_plan(predictor, "ring", 1);
  for (const ncast_dtype dtype : {NCAST_INT32, NCAST_INT64}) {
    const Said said = said_of(predictor, dtype);
    CHECK((said.plan == "all_gather ring") == (dtype == NCAST_INT32));
    CHECK(said.alternative_runs == (dtype == NCAST_INT32));
    CHECK((said.comparison.plan != nullptr) == (dtype == NCAST_INT32));
    CHECK((said.comparison.always != 0) == (dtype == NCAST_INT32));
    CHECK(said.sentence.find(" us plan:") == std::string::npos);  // not measured
  }

  const std::string name = said_of(predictor, NCAST_INT32).alternative;
  const Predictor measured = predictor_with_costs(
      "all_gather 2 nvlink blocks:raw 4000:9\nall_gather 2 nvlink blocks:window 4000:9\nall_gather 2 nvlink " + name +
      " 4000:5\n");
  use_plan(measured, "ring", 0);
  const Said said = said_of(measured, NCAST_INT32);
  CHECK(said.comparison.plan == std::string("all_gather ring"));
  CHECK(said.comparison.always == 0);
  CHECK(said.comparison.microseconds == 5);
  CHECK(said.sentence.ends_with(", 5.0 us " + name + "."));
}

TEST_CASE("a predictor outlives its communicator, and the host backend has no times") {
  ncast_comm_config config;
  ncast_comm_config_init(&config);
  ncast_unique_id id;
  ncast_comm* comm = nullptr;
  REQUIRE(ncast_get_unique_id(&id) == NCAST_OK);
  REQUIRE(ncast_comm_create(&comm, 1, &id, 0, &config) == NCAST_OK);
  ncast_predictor* made = nullptr;
  REQUIRE(ncast_comm_predictor(comm, &made) == NCAST_OK);
  const Predictor predictor(made, ncast_predictor_destroy);
  REQUIRE(ncast_comm_destroy(comm) == NCAST_OK);
  const ncast_comparison comparison = compared(predictor.get(), NCAST_OP_ALL_REDUCE, 512, 0);
  CHECK(comparison.faster == 0);
  CHECK(comparison.microseconds == 0);
  CHECK(std::string(comparison.reason) == "the cost model does not know this call");
  CHECK(ncast_predictor_costs_warning(predictor.get()) == nullptr);
  const ncast_plan plan(plan::verify::testing::ring_all_gather(1));
  CHECK(ncast_predictor_use_plan(predictor.get(), &plan, NCAST_INT32, NCAST_SUM, nullptr) == NCAST_INVALID_ARGUMENT);
  CHECK(testing::error_contains("the predictor is of a communicator, which knows its plans"));
}

TEST_CASE("a predictor uses only plans that are correct and that calls on GPUs can run") {
  const Predictor predictor = predictor_for(2);
  plan::Plan wrong = plan::verify::testing::ring_all_gather(2);
  wrong.ranks[1].groups[0].steps.pop_back();
  const ncast_plan refuted(wrong), exposing(plan::verify::testing::memory_all_gather(2));
  CHECK(ncast_predictor_use_plan(predictor.get(), &refuted, NCAST_INT32, NCAST_SUM, nullptr) == NCAST_INVALID_ARGUMENT);
  CHECK(ncast_predictor_use_plan(predictor.get(), &exposing, NCAST_INT32, NCAST_SUM, nullptr) == NCAST_UNSUPPORTED);
}

TEST_CASE("a predictor reports costs of unknown kernels") {
  const Predictor predictor =
      predictor_with_costs("all_gather 2 nvlink blocks:raw 1:9\nall_gather 2 nvlink blocks:window 1:9\n");
  REQUIRE(ncast_predictor_costs_warning(predictor.get()) != nullptr);
  CHECK(std::string(ncast_predictor_costs_warning(predictor.get())) ==
        "the cost model does not say which kernels it was measured on");
}

TEST_CASE("invalid arguments of predictors are rejected") {
  ncast_predictor* made = nullptr;
  const auto message = [](ncast_status status) {
    CHECK(status == NCAST_INVALID_ARGUMENT);
    return std::string(ncast_last_error());
  };
  CHECK(message(ncast_predictor_create(9, nullptr, &made)) == "ncast_predictor_create: ranks is 9, not 1 to 8");
  CHECK(message(ncast_predictor_create(2, nullptr, nullptr)) == "ncast_predictor_create: predictor is NULL");
  CHECK(message(ncast_comm_predictor(nullptr, &made)) == "ncast_comm_predictor: comm is NULL");
  CHECK(message(ncast_comm_predictor(nullptr, nullptr)) == "ncast_comm_predictor: predictor is NULL");
  {
    const testing::Environment model("NARROWCAST_COST_MODEL", "/nowhere");
    CHECK(message(ncast_predictor_create(2, nullptr, &made)) ==
          "ncast_predictor_create: NARROWCAST_COST_MODEL: /nowhere cannot be read: No such file or directory");
  }
  CHECK(made == nullptr);
  ncast_comparison comparison = {};
  const auto compare = [&](const ncast_predictor* predictor, int operation, ncast_comparison* result) {
    return message(ncast_predictor_compare(predictor, static_cast<ncast_operation>(operation), 1, NCAST_INT8,
                                           NCAST_CODEC_RAW, 0, result));
  };
  const Predictor predictor = predictor_for(2);
  CHECK(compare(nullptr, NCAST_OP_SEND, &comparison) == "ncast_predictor_compare: predictor is NULL");
  CHECK(compare(predictor.get(), 11, &comparison) ==
        "ncast_predictor_compare: operation is 11, which is not an operation");
  CHECK(compare(predictor.get(), NCAST_OP_SEND, nullptr) == "ncast_predictor_compare: comparison is NULL");
  CHECK(compare(predictor.get(), NCAST_OP_SEND, &comparison).find("struct_bytes is 0") != std::string::npos);
  ncast_predictor_destroy(nullptr);
  ncast_explanation* explanation = nullptr;
  ncast_plan_call call = {};
  call.struct_bytes = sizeof call;
  const auto explain = [&](const ncast_predictor* asked, const ncast_plan_call* about, ncast_explanation** result) {
    return message(ncast_predictor_explain_call(asked, about, result));
  };
  CHECK(explain(nullptr, &call, &explanation) == "ncast_predictor_explain_call: predictor is NULL");
  CHECK(explain(predictor.get(), nullptr, &explanation) == "ncast_predictor_explain_call: call is NULL");
  CHECK(explain(predictor.get(), &call, nullptr) == "ncast_predictor_explain_call: explanation is NULL");
  call.placement = NCAST_PLACEMENT_IN_PLACE + 1;
  CHECK(explain(predictor.get(), &call, &explanation) == "ncast_predictor_explain_call: placement is 3");
  call.placement = NCAST_PLACEMENT_UNKNOWN;
  const ncast_codec result_codec = NCAST_CODEC_INT8;
  call.result_codec = &result_codec;
  CHECK(explain(predictor.get(), &call, &explanation) ==
        "ncast_predictor_explain_call: result_codec is only for all_reduce, not for send");
}

}  // namespace
}  // namespace narrowcast
