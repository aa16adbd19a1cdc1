#include "plan/json/json.h"

#include <string>
#include <string_view>

#include "doctest/doctest.h"
#include "narrowcast/plan.h"
#include "nlohmann/json.hpp"
#include "plan/limits.h"
#include "plan/steps.h"

namespace narrowcast::plan::json {
namespace {

// Every key and every kind of step, place and channel.
constexpr std::string_view complete = R"({"narrowcast_plan": 1, "name": "all \"kinds\"", "operation": "reduce",
 "root": 1, "chunks": 4, "instances": 2, "scratch_copies": 2, "in_place": "no", "threads": "independent",
 "min_bytes": 1024, "max_bytes": 1048576,
 "channels": [{"kind": "ring", "from": 0, "to": 1, "depth": 8, "packets": true},
              {"kind": "memory", "from": 0, "to": 1, "initial": 1},
              {"kind": "port", "from": 1, "to": 0}, {"kind": "switch", "ranks": [0, 1]}],
 "ranks": [{"scratch_chunks": 4, "barriers": [[0, 1], []], "groups": [{"steps": [
   {"step": "copy", "count": 2, "origin": 7, "from": [{"buffer": "input", "chunk": 0}],
    "to": [{"channel": 0, "codec": "window"}, {"buffer": "output", "chunk": 3, "channel": 1, "packets": true}]},
   {"step": "reduce", "from": [{"channel": 2}, {"buffer": "input", "chunk": 1, "switch": 3}],
    "to": [{"buffer": "scratch", "chunk": 1, "switch": 3}], "after": [[1, 0], [1, 1]]},
   {"step": "signal", "channels": [1], "relaxed": true}, {"step": "flush", "channels": [2]}, {"step": "sync"},
   {"step": "loop", "unit_bytes": 4096, "steps": [{"step": "barrier", "barrier": 1}]}]},
   {"steps": []}]},
  {"groups": [{"steps": [{"step": "wait", "channels": [1, 1]}]}]}]})";

Plan read_plan(std::string_view text) {
  Plan plan;
  const ncast_status status = read(text, &plan);
  REQUIRE_MESSAGE(status == NCAST_OK, ncast_last_error());
  return plan;
}

// The message of the error that reading `text` must yield.
std::string error_of(std::string_view text, ncast_status expected = NCAST_INVALID_ARGUMENT) {
  Plan plan;
  CHECK(read(text, &plan) == expected);
  return ncast_last_error();
}

// A plan with one step, and the error of that step.
std::string error_of_step(const std::string& step) {
  return error_of(R"({"narrowcast_plan": 1, "operation": "all_reduce", "ranks": [{"groups": [{"steps": [)" + step +
                  "]}]}]}");
}

TEST_CASE("a plan that is read and written has every key of its text") {
  const Plan plan = read_plan(complete);
  CHECK(plan.operation == Operation::reduce);
  CHECK(plan.in_place == InPlace::no);
  CHECK(plan.threads == Threads::independent);
  CHECK(plan.channels[0].packets);
  const std::vector<Step>& steps = plan.ranks[0].groups[0].steps;
  CHECK(steps[0].to[0].place == Place::message);
  CHECK(steps[0].to[0].codec == NCAST_CODEC_WINDOW);
  CHECK(steps[0].to[1].place == Place::remote);
  CHECK(steps[1].from[1].place == Place::everywhere);
  CHECK(steps[1].after[1] == StepId{1, 1});
  CHECK(steps[5].body[0].kind == StepKind::barrier);

  CHECK(nlohmann::json::parse(write(plan)) == nlohmann::json::parse(complete));
}

TEST_CASE("keys that have their default are omitted") {
  const std::string text = write(read_plan(R"({"narrowcast_plan": 1, "operation": "all_gather", "chunks": 1,
      "in_place": "either", "channels": [], "ranks": [{"scratch_chunks": 0, "groups": [{"steps": [
      {"step": "copy", "count": 1, "from": [{"buffer": "input", "chunk": 0}],
       "to": [{"buffer": "output", "chunk": 0, "packets": false}]}]}]}]})"));
  for (const char* key : {"chunks", "in_place", "scratch_chunks", "count", "packets", "name", "threads"})
    CHECK_MESSAGE(text.find("\"" + std::string(key) + "\"") == text.npos, key);
}

TEST_CASE("an error names the place in the text") {
  CHECK(error_of("{\"narrowcast_plan\": 1,\n \"operation\": }").find("line 2, column 15") != std::string::npos);
  CHECK(error_of("[]") == "plan: expected an object, not an array");
  CHECK(error_of("{}") == "plan: has no 'narrowcast_plan'");
  CHECK(error_of(R"({"narrowcast_plan": 2})", NCAST_UNSUPPORTED) ==
        "plan: the plan has version 2 of the form, and this library reads version 1");
  CHECK(error_of(R"({"narrowcast_plan": 1, "operation": "allreduce"})") ==
        "plan: operation: 'allreduce' is not an operation");
  CHECK(error_of(R"({"narrowcast_plan": 1, "operation": "send"})") == "plan: operation: there are no plans for send");
  CHECK(error_of(R"({"narrowcast_plan": 1, "operation": "all_reduce", "ranks": [], "colour": 1})") ==
        "plan: unknown key 'colour'");
  CHECK(error_of(R"({"narrowcast_plan": 1, "operation": "all_reduce", "ranks": [], "ranks": []})") ==
        "plan: an object has 'ranks' twice");
  CHECK(error_of(R"({"narrowcast_plan": 1, "operation": "all_reduce", "chunks": -1, "ranks": []})") ==
        "plan: chunks: expected a whole number from 0 to 4294967295, not '-1'");
  CHECK(
      error_of_step(R"({"step": "jump"})") ==
      "plan: ranks[0].groups[0].steps[0].step: 'jump' is not one of copy, reduce, signal, wait, flush, barrier, sync, "
      "loop");
  CHECK(error_of_step(R"({"step": "sync"}, {"step": "copy", "from": [{"buffer": "input", "chunk": 1e3}]})") ==
        "plan: ranks[0].groups[0].steps[1].from[0].chunk: expected a whole number from 0 to 4294967295, not '1000.0'");
  CHECK(error_of_step(R"({"step": "sync", "after": [[1]]})") ==
        "plan: ranks[0].groups[0].steps[0].after[0]: expected [group, step], not an array");
}

TEST_CASE("steps have the operands that their rows state") {
  const std::string step = "plan: ranks[0].groups[0].steps[0]: ";
  CHECK(error_of_step(R"({"step": "copy", "to": [{"channel": 0}]})") == step + "step copy has 0 sources instead of 1");
  CHECK(error_of_step(R"({"step": "reduce", "from": [{"channel": 0}], "to": [{"channel": 0}]})") ==
        step + "step reduce has 1 sources, but needs at least 2");
  CHECK(error_of_step(R"({"step": "copy", "from": [{"channel": 0}]})") == step + "step copy has no destination");
  CHECK(error_of_step(R"({"step": "sync", "to": [{"channel": 0}]})") == step + "step sync has no 'to'");
  CHECK(error_of_step(R"({"step": "sync", "channels": [0]})") == step + "has keys that do not belong together");
  CHECK(error_of_step(R"({"step": "wait", "channels": []})") == "plan: ranks[0].groups[0].steps[0].channels: is empty");
  CHECK(error_of_step(
            R"({"step": "loop", "unit_bytes": 1, "steps": [{"step": "loop", "unit_bytes": 1, "steps": []}]})") ==
        "plan: ranks[0].groups[0].steps[0].steps[0]: loops cannot be nested");
}

TEST_CASE("a plan names codecs that exist") {
  const std::string to = "plan: ranks[0].groups[0].steps[0].to[0].codec: ";
  const auto error_of_codec = [](const std::string& operand) {
    return error_of_step(R"({"step": "copy", "from": [{"buffer": "input", "chunk": 0}], "to": [)" + operand + "]}");
  };
  CHECK(error_of_codec(R"({"channel": 0, "codec": "windw"})").starts_with(to + "'windw' is not a codec"));
  CHECK(error_of_codec(R"({"channel": 0, "codec": "auto"})") == to + "a plan must name the codec, not auto or within");
  CHECK(error_of_codec(R"({"channel": 0, "codec": "window!"})") == to + "a plan's codec is always used: omit the '!'");
  CHECK(error_of_step(R"({"step": "copy", "from": [{"buffer": "input", "chunk": 0, "codec": "window"}],
                          "to": [{"buffer": "output", "chunk": 0}]})") ==
        "plan: ranks[0].groups[0].steps[0].from[0].codec: values in a buffer of the rank are not encoded");
}

TEST_CASE("a destination in a buffer of the rank may have a codec") {
  const Plan plan = read_plan(R"({"narrowcast_plan": 1, "operation": "all_reduce", "ranks": [{"groups": [{"steps": [
      {"step": "copy", "from": [{"buffer": "input", "chunk": 0}],
       "to": [{"buffer": "output", "chunk": 0, "codec": "window"}]}]}]}]})");
  CHECK(plan.ranks[0].groups[0].steps[0].to[0].codec == NCAST_CODEC_WINDOW);
}

TEST_CASE("operands may contain partial sums") {
  const std::string text = R"({"narrowcast_plan": 1, "operation": "all_reduce", "ranks": [{"scratch_chunks": 1,
      "groups": [{"steps": [{"step": "copy", "from": [{"buffer": "scratch", "chunk": 0, "partial": true}],
       "to": [{"channel": 0, "partial": true}]}]}]}]})";
  const Plan plan = read_plan(text);
  const Step& step = plan.ranks[0].groups[0].steps[0];
  CHECK(step.from[0].partial);
  CHECK(step.to[0].partial);
  const Plan again = read_plan(write(plan));
  CHECK(again.ranks[0].groups[0].steps[0].from == step.from);
  CHECK(again.ranks[0].groups[0].steps[0].to == step.to);
}

TEST_CASE("hostile texts give errors") {
  CHECK(!error_of("").empty());
  CHECK(!error_of(std::string(1'000'000, '[')).empty());
  CHECK(!error_of(R"({"narrowcast_plan": 1e999})").empty());
  CHECK(!error_of("{\"narrowcast_plan\": 1, \"name\": \"\xff\"}").empty());
  std::string ranks = R"({"narrowcast_plan": 1, "operation": "all_reduce", "ranks": [)";
  for (uint32_t rank = 0; rank <= max_ranks; ++rank) ranks += R"({"groups": []},)";
  ranks.back() = ']';
  CHECK(error_of(ranks + "}") == "plan: ranks[1024]: more than 1024 ranks");
}

TEST_CASE("an object with many keys is rejected after the first of them") {
  std::string text = R"({"narrowcast_plan": 1)";
  for (int key = 0; key < 40'000; ++key) text += ", \"" + std::to_string(key) + "\": 0";
  // The text is cut off: if its end were read, that would be the error.
  CHECK(error_of(text) == "plan: an object has more than 32 keys");
  std::string ranks = R"({"narrowcast_plan": 1, "operation": "all_reduce", "ranks": [])";
  for (int key = 3; key < 32; ++key) ranks += ", \"" + std::to_string(key) + "\": 0";
  CHECK(error_of(ranks + "}") == "plan: unknown key '10'");
  CHECK(error_of(ranks + ", \"32\": 0}") == "plan: an object has more than 32 keys");
}

TEST_CASE("the C functions read, describe and write plans") {
  ncast_plan* plan = nullptr;
  REQUIRE(ncast_plan_read(complete.data(), complete.size(), &plan) == NCAST_OK);
  ncast_plan_info info = {};
  info.struct_bytes = sizeof info;
  REQUIRE(ncast_plan_describe(plan, &info) == NCAST_OK);
  CHECK(info.name == std::string_view("all \"kinds\""));
  CHECK(info.operation == NCAST_OP_REDUCE);
  CHECK(info.root == 1);
  CHECK(info.ranks == 2);
  CHECK(info.chunks == 4);
  CHECK(info.groups == 2);
  CHECK(info.steps == 8);
  ncast_text* text = nullptr;
  REQUIRE(ncast_plan_write(plan, &text) == NCAST_OK);
  CHECK(ncast_text_data(text) == write(read_plan(complete)));
  CHECK(ncast_text_bytes(text) == write(read_plan(complete)).size());
  ncast_text_destroy(text);

  CHECK(ncast_plan_write(plan, nullptr) == NCAST_INVALID_ARGUMENT);
  CHECK(ncast_plan_describe(plan, nullptr) == NCAST_INVALID_ARGUMENT);
  CHECK(ncast_plan_describe(nullptr, &info) == NCAST_INVALID_ARGUMENT);
  info.struct_bytes = 0;
  CHECK(ncast_plan_describe(plan, &info) == NCAST_INVALID_ARGUMENT);
  ncast_plan_destroy(plan);
  CHECK(ncast_plan_read(nullptr, 0, &plan) == NCAST_INVALID_ARGUMENT);
  CHECK(ncast_plan_write(nullptr, &text) == NCAST_INVALID_ARGUMENT);
  ncast_text_destroy(nullptr);
  ncast_plan_destroy(nullptr);
}

}  // namespace
}  // namespace narrowcast::plan::json
