#include <utility>

#include "doctest/doctest.h"
#include "executor/cuda/generated/compile.h"
#include "narrowcast/plan.h"
#include "plan/builders/builders.h"
#include "plan/handle.h"
#include "plan/lower/lower.h"

namespace narrowcast::executor::cuda::generated {
namespace {

constexpr const char* four_gpus = R"({"narrowcast_machine": 1, "gpus_per_host": 4, "link_gbps": 100,
  "link_packets_gbps": 50, "link_latency_us": 1, "ctas": 64, "cta_move_gbps": 400, "cta_reduce_gbps": 400,
  "cta_encode_gbps": 40, "cta_decode_gbps": 40, "slot_latency_us": 0, "coded_latency_us": 1, "step_us": 0.1,
  "launch_us": 1})";

// An all-gather in which each rank sends on 48 rings and receives on 48, scheduled in at most so many groups.
ncast_status schedule_in(uint32_t groups, bool any_executor, plan::Plan* result) {
  plan::Plan pairs;
  REQUIRE(plan::builders::build("all_pairs", {.operation = plan::Operation::all_gather, .ranks = 4}, &pairs) ==
          NCAST_OK);
  pairs.instances = 16;
  REQUIRE(plan::lower::lower(pairs, &pairs) == NCAST_OK);
  const ncast_plan given(std::move(pairs));
  ncast_plan_simulation simulation = {};
  simulation.struct_bytes = sizeof simulation;
  simulation.piece_bytes = 256'000'000;
  simulation.max_groups = groups;
  simulation.max_instances = 1;
  simulation.any_executor = any_executor ? 1 : 0;
  ncast_plan* scheduled = nullptr;
  ncast_text* report = nullptr;
  if (const ncast_status status = ncast_plan_schedule(&given, four_gpus, &simulation, &scheduled, &report))
    return status;
  ncast_text_destroy(report);
  *result = scheduled->plan;
  ncast_plan_destroy(scheduled);
  return NCAST_OK;
}

ncast_status generate_for(const plan::Plan& plan, ncast_dtype dtype) {
  CompiledPlan generated;
  return generate(plan, {.dtype = dtype, .architecture = 90}, &generated);
}

TEST_CASE("kernels can be generated for scheduled plans, unless any executor may run them") {
  plan::Plan plan;
  REQUIRE(schedule_in(8, false, &plan) == NCAST_OK);
  for (const ncast_dtype dtype : {NCAST_BFLOAT16, NCAST_FLOAT32, NCAST_FLOAT64})
    CHECK(generate_for(plan, dtype) == NCAST_OK);
  // A group of a generated kernel uses at most 31 rings.
  CHECK(schedule_in(1, false, &plan) == NCAST_UNSUPPORTED);
  REQUIRE(schedule_in(1, true, &plan) == NCAST_OK);
  CHECK(generate_for(plan, NCAST_BFLOAT16) == NCAST_UNSUPPORTED);
}

}  // namespace
}  // namespace narrowcast::executor::cuda::generated
