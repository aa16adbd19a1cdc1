// Schedules of small plans on a small machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "narrowcast/plan.h"
#include "plan/json/json.h"
#include "plan/schedule/scheduler.h"
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
inline Result schedule_of(const Plan& plan, uint32_t max_groups = 0, uint32_t max_instances = 2) {
  Result result;
  const Options options{{.piece_bytes = 1'000'000, .max_batches = 1}, max_groups, max_instances};
  const ncast_status status = schedule(plan, test_machine(), options, &result);
  REQUIRE_MESSAGE(status == NCAST_OK, ncast_last_error());
  CHECK(verify::verify(result.plan).verdict == verify::Verdict::proved);
  return result;
}

}  // namespace narrowcast::plan::schedule
