#include "plan/simulate/simulate.h"

#include <string>

#include "doctest/doctest.h"
#include "plan/json/json.h"

namespace narrowcast::plan::simulate {
namespace {

// Round numbers: a link carries 100 bytes per nanosecond, and nothing else takes any time.
constexpr std::string_view machine_text = R"({"narrowcast_machine": 1, "name": "test", "hosts": 2, "gpus_per_host": 2,
  "link_gbps": 100, "link_packets_gbps": 50, "link_latency_us": 2, "network_gbps": 10, "network_latency_us": 5,
  "ctas": 10, "cta_move_gbps": 1e9, "cta_reduce_gbps": 1e9, "cta_encode_gbps": 1e9, "cta_decode_gbps": 1e9,
  "slot_latency_us": 0, "coded_latency_us": 0, "step_us": 0, "launch_us": 1})";

Machine machine_of(std::string_view text) {
  Machine machine;
  const ncast_status status = read_machine(text, &machine);
  REQUIRE_MESSAGE(status == NCAST_OK, ncast_last_error());
  return machine;
}

// A broadcast from rank 0 along `path`, for example {0, 1, 2}.
Plan relay(const std::vector<int>& path, const std::string& ring_keys = "", const std::string& message_keys = "") {
  std::string channels, ranks;
  for (size_t i = 0; i + 1 < path.size(); ++i)
    channels += (i == 0 ? "" : ", ") + (R"({"kind": "ring", "depth": 2, "from": )" + std::to_string(path[i])) +
                ", \"to\": " + std::to_string(path[i + 1]) + ring_keys + "}";
  for (int rank = 0; rank < static_cast<int>(path.size()); ++rank) {
    size_t place = 0;
    while (path[place] != rank) ++place;
    const std::string from = place == 0 ? R"({"buffer": "input", "chunk": 0})"
                                        : "{\"channel\": " + std::to_string(place - 1) + message_keys + "}";
    const std::string forward =
        place + 1 == path.size() ? "" : ", {\"channel\": " + std::to_string(place) + message_keys + "}";
    ranks += (rank == 0 ? "" : ", ") + (R"({"groups": [{"steps": [{"step": "copy", "from": [)" + from) +
             R"(], "to": [{"buffer": "output", "chunk": 0})" + forward + "]}]}]}";
  }
  Plan plan;
  const ncast_status status = json::read(
      R"({"narrowcast_plan": 1, "operation": "broadcast", "channels": [)" + channels + "], \"ranks\": [" + ranks + "]}",
      &plan);
  REQUIRE_MESSAGE(status == NCAST_OK, ncast_last_error());
  return plan;
}

Prediction predict(const Plan& plan, const Options& options, const Machine& machine = machine_of(machine_text)) {
  Prediction prediction;
  const ncast_status status = simulate(plan, machine, options, &prediction);
  REQUIRE_MESSAGE(status == NCAST_OK, ncast_last_error());
  return prediction;
}

constexpr uint64_t million = 1'000'000;

TEST_CASE("a message takes its bytes over the link's rate, a flight and the launch") {
  const Prediction prediction = predict(relay({0, 1}), {.piece_bytes = million, .max_batches = 1});
  CHECK(prediction.microseconds == doctest::Approx(10 + 2 + 1).epsilon(0.001));
  CHECK(prediction.sent_bytes == std::vector<double>{double{million}, 0});
}

TEST_CASE("encoded messages send fewer bytes, and packets use the link less well") {
  const Options options{.piece_bytes = million, .ratio = 0.5, .max_batches = 1};
  CHECK(predict(relay({0, 1}, "", R"(, "codec": "window")"), options).microseconds ==
        doctest::Approx(5 + 2 + 1).epsilon(0.001));
  CHECK(predict(relay({0, 1}, R"(, "packets": true)"), options).microseconds ==
        doctest::Approx(20 + 2 + 1).epsilon(0.001));
}

TEST_CASE("ranks of different hosts use the network") {
  CHECK(predict(relay({0, 2, 1}), {.piece_bytes = million, .max_batches = 1}).microseconds ==
        doctest::Approx(2 * (100 + 5) + 1).epsilon(0.001));
}

TEST_CASE("micro-batches make a pipeline of the hops") {
  const Prediction whole = predict(relay({0, 2, 1}), {.piece_bytes = 10 * million, .max_batches = 1});
  const Prediction pipelined = predict(relay({0, 2, 1}), {.piece_bytes = 10 * million, .max_batches = 10});
  CHECK(pipelined.batches == 10);
  CHECK(whole.microseconds == doctest::Approx(2011).epsilon(0.001));
  // 10 parts of 100 us over the first hop, and the last part over the second one.
  CHECK(pipelined.microseconds == doctest::Approx(1000 + 5 + 100 + 5 + 1).epsilon(0.01));
}

TEST_CASE("a micro-batch is what the CTAs have in flight") {
  CHECK(predict(relay({0, 1}), {.piece_bytes = million}).batches == 3);  // 32 KiB of each of 10 CTAs
  CHECK(predict(relay({0, 1}, R"(, "packets": true)"), {.piece_bytes = million}).batches == 15);
}

TEST_CASE("every micro-batch arrives after the latencies of its steps, and the next ones do not wait for them") {
  std::string text(machine_text);
  text.replace(text.find("\"slot_latency_us\": 0"), 20, "\"slot_latency_us\": 7");
  for (const uint32_t batches : {1u, 4u, 10u}) {
    const Options options{.piece_bytes = 10 * million, .max_batches = batches};
    CHECK(predict(relay({0, 1}), options, machine_of(text)).microseconds ==
          doctest::Approx(100 + 7 + 2 + 7 + 1).epsilon(0.001));
    CHECK(predict(relay({0, 1}, R"(, "packets": true)"), options, machine_of(text)).microseconds ==
          doctest::Approx(200 + 2 + 1).epsilon(0.001));
  }
}

TEST_CASE("transfers share a link, and a full ring makes the sender wait") {
  // Two groups of rank 0 send to rank 1, which receives the second message only after the first.
  const std::string text = R"({"narrowcast_plan": 1, "operation": "all_gather", "channels": [
      {"kind": "ring", "depth": 1, "from": 0, "to": 1}, {"kind": "ring", "depth": 1, "from": 0, "to": 1}],
    "ranks": [{"groups": [
        {"steps": [{"step": "copy", "from": [{"buffer": "input", "chunk": 0}], "to": [{"channel": 0}]}]},
        {"steps": [{"step": "copy", "from": [{"buffer": "input", "chunk": 0}], "to": [{"channel": 1}]}]}]},
      {"groups": [{"steps": [
        {"step": "copy", "from": [{"channel": 0}], "to": [{"buffer": "output", "chunk": 0}]},
        {"step": "copy", "from": [{"channel": 1}], "to": [{"buffer": "output", "chunk": 0}]}]}]}]})";
  Plan plan;
  REQUIRE(json::read(text, &plan) == NCAST_OK);
  const Prediction prediction = predict(plan, {.piece_bytes = million, .max_batches = 1, .records_timeline = true});
  CHECK(prediction.microseconds == doctest::Approx(20 + 2 + 1).epsilon(0.001));
  REQUIRE(prediction.groups.size() == 3);
  CHECK(prediction.groups[0].busy_us == doctest::Approx(20).epsilon(0.001));
  CHECK(prediction.timeline.size() == 4);
}

TEST_CASE("the CTAs of a group limit its rate") {
  std::string text(machine_text);
  text.replace(text.find("\"cta_move_gbps\": 1e9"), 20, "\"cta_move_gbps\": 2.0");
  const Machine machine = machine_of(text);
  // A load and two stores for the sender, a load and a store for the receiver: 1 MB / (10 CTAs * 2 GB/s) for each.
  CHECK(predict(relay({0, 1}), {.piece_bytes = million, .max_batches = 1}, machine).microseconds ==
        doctest::Approx(150 + 2 + 100 + 1).epsilon(0.001));
  CHECK(predict(relay({0, 1}), {.piece_bytes = million, .max_batches = 1, .ctas_per_group = 5}, machine).microseconds ==
        doctest::Approx(300 + 2 + 200 + 1).epsilon(0.001));
}

TEST_CASE("semaphores, barriers and dependences are waited for") {
  const std::string text = R"({"narrowcast_plan": 1, "operation": "all_gather", "channels": [
      {"kind": "memory", "from": 0, "to": 1}],
    "ranks": [{"barriers": [[0, 1]], "groups": [
        {"steps": [{"step": "copy", "from": [{"buffer": "input", "chunk": 0}],
                    "to": [{"buffer": "output", "chunk": 0, "channel": 0}]}, {"step": "barrier", "barrier": 0}]},
        {"steps": [{"step": "barrier", "barrier": 0}, {"step": "signal", "channels": [0]}]}]},
      {"groups": [{"steps": [{"step": "wait", "channels": [0]}]},
                  {"steps": [{"step": "sync", "after": [[0, 0]]}]}]}]})";
  Plan plan;
  REQUIRE(json::read(text, &plan) == NCAST_OK);
  CHECK(predict(plan, {.piece_bytes = million, .max_batches = 1}).microseconds ==
        doctest::Approx(10 + 2 + 1).epsilon(0.001));
}

TEST_CASE("a plan that cannot run is an error") {
  Prediction prediction;
  const Machine machine = machine_of(machine_text);
  CHECK(simulate(relay({0, 1, 2, 3, 4}), machine, {.piece_bytes = 1}, &prediction) == NCAST_INVALID_ARGUMENT);
  CHECK(std::string(ncast_last_error()) == "plan: 5 ranks, but the machine has 4 GPUs");
  Plan plan = relay({0, 1});
  plan.ranks[0].groups.clear();
  CHECK(simulate(plan, machine, {.piece_bytes = 1}, &prediction) == NCAST_INVALID_ARGUMENT);
  CHECK(std::string(ncast_last_error()) == "plan: it does not complete; verify it");
}

TEST_CASE("a machine's description is checked") {
  Machine machine;
  const auto error_of = [&](std::string text) {
    CHECK(read_machine(text, &machine) == NCAST_INVALID_ARGUMENT);
    return std::string(ncast_last_error());
  };
  CHECK(error_of("{") == "machine: not JSON");
  CHECK(error_of("{}") == "machine: expected an object with \"narrowcast_machine\": 1");
  const auto changed = [](const std::string& old, const std::string& by) {
    std::string text(machine_text);
    return text.replace(text.find(old), old.size(), by);
  };
  CHECK(error_of(changed("\"ctas\": 10", "\"ctas\": 0")) == "machine: ctas must be a whole number from 1 to 1024");
  CHECK(error_of(changed("\"link_gbps\": 100", "\"link_gbps\": 0")) ==
        "machine: link_gbps must be a number greater than 0");
  CHECK(error_of(changed("\"step_us\": 0", "\"steps_us\": 0")) == "machine: step_us must be a number, 0 or more");
  CHECK(error_of(changed("\"step_us\": 0", "\"step_us\": 0, \"colour\": 1")) == "machine: unknown key 'colour'");
}

}  // namespace
}  // namespace narrowcast::plan::simulate
