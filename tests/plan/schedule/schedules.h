// Schedules of small plans on a small machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "narrowcast/plan.h"
#include "plan/json/json.h"
#include "plan/schedule/schedule.h"
#include "plan/verify/verify.h"

namespace narrowcast::plan::schedule {

inline constexpr const char* machine_text = R"({"narrowcast_machine": 1, "gpus_per_host": 4, "link_gbps": 100,
  "link_packets_gbps": 50, "link_latency_us": 1, "ctas": 64, "cta_move_gbps": 400, "cta_reduce_gbps": 400,
  "cta_encode_gbps": 40, "cta_decode_gbps": 40, "slot_latency_us": 0, "coded_latency_us": 1, "step_us": 0.1, "launch_us": 1})";

inline simulate::Machine test_machine() {
  simulate::Machine machine;
  REQUIRE(simulate::read_machine(machine_text, &machine) == NCAST_OK);
  return machine;
}

// Of calls in one micro-batch, with a CTA for each group.
inline Options options_of(uint64_t piece_bytes) {
  return {.simulation = {.piece_bytes = piece_bytes, .max_batches = 1, .ctas_per_group = 1}};
}

// With the times of the steps.
inline simulate::Prediction predict(const Plan& plan, const simulate::Machine& machine, const Options& options) {
  simulate::Options simulation = options.simulation;
  simulation.records_timeline = true;
  simulate::Prediction prediction;
  REQUIRE(simulate::simulate(plan, machine, simulation, &prediction) == NCAST_OK);
  return prediction;
}

// Of calls in one micro-batch. The result is proved.
inline Result schedule_of(const Plan& plan, uint32_t max_groups = 0, uint32_t max_instances = 16) {
  Result result;
  const Options options{{.piece_bytes = 1'000'000, .max_batches = 1}, max_groups, max_instances};
  const ncast_status status = schedule(plan, test_machine(), options, &result);
  REQUIRE_MESSAGE(status == NCAST_OK, ncast_last_error());
  CHECK(verify::verify(result.plan).verdict == verify::Verdict::proved);
  return result;
}

// An all-gather of two ranks that also fill their scratch, which takes most of the time. The groups of rank 0 work for
// about 24, 4, 4 and 4 copies of both chunks, those of rank 1 for 12 and 11.
inline Plan gather_with_uneven_ranks() {
  const auto at = [](const char* buffer, uint32_t chunk) {
    return std::string(R"({"buffer": ")") + buffer + R"(", "chunk": )" + std::to_string(chunk) + "}";
  };
  const auto ring = [](int number) { return "{\"channel\": " + std::to_string(number) + "}"; };
  const auto copy = [](const std::string& from, const std::string& to) {
    return R"({"step": "copy", "count": 2, "from": [)" + from + "], \"to\": [" + to + "]}";
  };
  const auto rank = [&](int own, uint32_t first, const std::vector<uint32_t>& others) {
    uint32_t scratch = 0;
    const auto copies = [&](uint32_t count) {
      std::string steps;
      for (uint32_t i = 0; i < count; ++i, scratch += 2)
        steps += (i == 0 ? "" : ", ") + copy(at("input", 0), at("scratch", scratch));
      return steps;
    };
    const int other = 1 - own;
    std::string groups = "{\"steps\": [" + copy(at("input", 0), ring(own) + ", " + at("output", 2 * own)) + ", " +
                         copy(ring(other), at("output", 2 * other)) + ", " + copies(first) + "]}";
    for (uint32_t count : others) groups += ", {\"steps\": [" + copies(count) + "]}";
    return "{\"scratch_chunks\": " + std::to_string(scratch) + ", \"groups\": [" + groups + "]}";
  };
  Plan plan;
  const ncast_status status =
      json::read(R"({"narrowcast_plan": 1, "operation": "all_gather", "chunks": 2, "in_place": "no", "channels": [
                    {"kind": "ring", "from": 0, "to": 1, "depth": 2}, {"kind": "ring", "from": 1, "to": 0, "depth": 2}],
                    "ranks": [)" +
                     rank(0, 20, {4, 4, 4}) + ", " + rank(1, 8, {11}) + "]}",
                 &plan);
  REQUIRE_MESSAGE(status == NCAST_OK, ncast_last_error());
  REQUIRE(verify::verify(plan).verdict == verify::Verdict::proved);
  return plan;
}

}  // namespace narrowcast::plan::schedule
