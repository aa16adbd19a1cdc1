// Predictions for small plans, on a machine with round numbers.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "plan/simulate/simulate.h"
#include "support/plans.h"

namespace narrowcast::plan::simulate {

using namespace verify::testing;

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

// The test's machine with other numbers, for example {"\"step_us\": 0", "\"step_us\": 7"}.
inline Machine machine_with(std::initializer_list<std::pair<std::string, std::string>> changes) {
  std::string text(machine_text);
  for (const auto& [old, by] : changes) text.replace(text.find(old), old.size(), by);
  return machine_of(text);
}

// The same with four GPUs in one host.
inline Machine one_host(std::initializer_list<std::pair<std::string, std::string>> changes = {}) {
  Machine machine = machine_with(changes);
  machine.hosts = 1;
  machine.gpus_per_host = 4;
  return machine;
}

inline Prediction predict(const Plan& plan, const Options& options, const Machine& machine = machine_of(machine_text)) {
  Prediction prediction;
  const ncast_status status = simulate(plan, machine, options, &prediction);
  REQUIRE_MESSAGE(status == NCAST_OK, ncast_last_error());
  return prediction;
}

inline double microseconds_of(const Plan& plan, const Options& options,
                              const Machine& machine = machine_of(machine_text)) {
  return predict(plan, options, machine).microseconds;
}
inline doctest::Approx about(double microseconds) { return doctest::Approx(microseconds).epsilon(0.001); }

// A broadcast from rank 0 along `path`, for example {0, 1, 2}.
inline Plan relay(const std::vector<int>& path, bool as_packets = false, ncast_codec codec = NCAST_CODEC_RAW) {
  Plan plan = empty_plan(Operation::broadcast, static_cast<int>(path.size()));
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    const uint32_t ring = add_ring(plan, path[i], path[i + 1], 2);
    plan.channels[ring].packets = as_packets;
  }
  for (uint32_t place = 0; place < path.size(); ++place) {
    std::vector<Operand> to = {output(0)};
    if (place + 1 < path.size()) to.push_back(message(place, codec));
    add(plan, path[place], copy(place == 0 ? input(0) : message(place - 1, codec), to));
  }
  return plan;
}

// An all-reduce of two ranks in one group each: send the other's part, reduce the own one, send it, receive the other.
inline Plan reduction_in_turns(uint32_t depth, bool as_packets = false) {
  Plan plan = empty_plan(Operation::all_reduce, 2, 2);
  for (const int rank : {0, 1}) {
    const uint32_t ring = add_ring(plan, rank, 1 - rank, depth), own = ring, other = 1 - ring;
    plan.channels[ring].packets = as_packets;
    add(plan, rank, copy(input(other), {message(own)}));
    add(plan, rank, reduce({input(own), message(other)}, {output(own), message(own)}));
    add(plan, rank, copy(message(other), {output(other)}));
  }
  return plan;
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
inline Plan reduction() {
  Plan plan = empty_plan(Operation::reduce, 3);
  plan.root = 2;
  for (const int rank : {0, 1}) add(plan, rank, copy(input(0), {message(add_ring(plan, rank, 2, 1))}));
  add(plan, 2, reduce({message(0), message(1), input(0)}, {output(0)}));
  return encoding(plan);
}

inline constexpr uint64_t million = 1'000'000;

}  // namespace narrowcast::plan::simulate
