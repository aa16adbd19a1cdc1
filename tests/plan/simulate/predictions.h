// Predictions for plans in JSON, on a machine with round numbers.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

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

inline constexpr uint64_t million = 1'000'000;

}  // namespace narrowcast::plan::simulate
