// Predictions for plans in JSON, on a machine with round numbers.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "plan/json/json.h"
#include "plan/simulate/simulate.h"

namespace narrowcast::plan::simulate {

// Round numbers: a link carries 100 bytes per nanosecond, and nothing else takes any time.
inline constexpr std::string_view machine_text =
    R"({"narrowcast_machine": 1, "name": "test", "hosts": 2, "gpus_per_host": 2,
  "link_gbps": 100, "link_packets_gbps": 50, "link_latency_us": 2, "network_gbps": 10, "network_latency_us": 5,
  "ctas": 10, "cta_move_gbps": 1e9, "cta_reduce_gbps": 1e9, "cta_encode_gbps": 1e9, "cta_decode_gbps": 1e9,
  "slot_latency_us": 0, "coded_latency_us": 0, "step_us": 0, "launch_us": 1})";

inline Machine machine_of(std::string_view text) {
  Machine machine;
  const ncast_status status = read_machine(text, &machine);
  REQUIRE_MESSAGE(status == NCAST_OK, ncast_last_error());
  return machine;
}

inline Plan plan_of(const std::string& json) {
  Plan plan;
  const ncast_status status = json::read(json, &plan);
  REQUIRE_MESSAGE(status == NCAST_OK, ncast_last_error());
  return plan;
}

// The test's machine with other numbers, for example {"\"step_us\": 0", "\"step_us\": 7"}.
inline Machine machine_with(std::initializer_list<std::pair<std::string, std::string>> changes) {
  std::string text(machine_text);
  for (const auto& [old, by] : changes) text.replace(text.find(old), old.size(), by);
  return machine_of(text);
}

inline Prediction predict(const Plan& plan, const Options& options, const Machine& machine = machine_of(machine_text)) {
  Prediction prediction;
  const ncast_status status = simulate(plan, machine, options, &prediction);
  REQUIRE_MESSAGE(status == NCAST_OK, ncast_last_error());
  return prediction;
}

// A broadcast from rank 0 along `path`, for example {0, 1, 2}.
inline Plan relay(const std::vector<int>& path, const std::string& ring_keys = "",
                  const std::string& message_keys = "") {
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
  return plan_of(R"({"narrowcast_plan": 1, "operation": "broadcast", "channels": [)" + channels + "], \"ranks\": [" +
                 ranks + "]}");
}

// An all-reduce of two ranks in one group each: send the other's part, reduce the own one, send it, receive the other.
inline Plan reduction_in_turns(const std::string& depth, const std::string& ring_keys = "") {
  std::string ranks;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string own = std::to_string(rank), other = std::to_string(1 - rank);
    ranks += (rank == 0 ? "" : ", ") +
             (R"({"groups": [{"steps": [{"step": "copy", "from": [{"buffer": "input", "chunk": )" + other) +
             R"(}], "to": [{"channel": )" + own + R"(}]}, {"step": "reduce", "from": [{"buffer": "input", "chunk": )" +
             own + R"(}, {"channel": )" + other + R"(}], "to": [{"buffer": "output", "chunk": )" + own +
             R"(}, {"channel": )" + own + R"(}]}, {"step": "copy", "from": [{"channel": )" + other +
             R"(}], "to": [{"buffer": "output", "chunk": )" + other + "}]}]}]}";
  }
  return plan_of(R"({"narrowcast_plan": 1, "operation": "all_reduce", "chunks": 2, "in_place": "no", "channels": [
      {"kind": "ring", "depth": )" +
                 depth + R"(, "from": 0, "to": 1)" + ring_keys + R"(}, {"kind": "ring", "depth": )" + depth +
                 R"(, "from": 1, "to": 0)" + ring_keys + R"(}], "ranks": [)" + ranks + "]}");
}

// The plan with encoded messages.
inline Plan encoding(Plan plan) {
  for (Rank& rank : plan.ranks)
    for (Group& group : rank.groups)
      for (Step& step : group.steps)
        for (std::vector<Operand>* operands : {&step.from, &step.to})
          for (Operand& one : *operands)
            if (one.place == Place::message) one.codec = NCAST_CODEC_WINDOW;
  return plan;
}

// Ranks 0 and 1 send encoded values to rank 2, which reduces them with its own.
inline const std::string reduction = R"({"narrowcast_plan": 1, "operation": "reduce", "channels": [
      {"kind": "ring", "depth": 1, "from": 0, "to": 2}, {"kind": "ring", "depth": 1, "from": 1, "to": 2}],
    "root": 2, "ranks": [
      {"groups": [{"steps": [{"step": "copy", "from": [{"buffer": "input", "chunk": 0}],
                              "to": [{"channel": 0, "codec": "window"}]}]}]},
      {"groups": [{"steps": [{"step": "copy", "from": [{"buffer": "input", "chunk": 0}],
                              "to": [{"channel": 1, "codec": "window"}]}]}]},
      {"groups": [{"steps": [{"step": "reduce", "from": [{"channel": 0, "codec": "window"},
          {"channel": 1, "codec": "window"}, {"buffer": "input", "chunk": 0}],
          "to": [{"buffer": "output", "chunk": 0}]}]}]}]})";

inline constexpr uint64_t million = 1'000'000;

}  // namespace narrowcast::plan::simulate
