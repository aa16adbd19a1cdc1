#include <memory>

#include "doctest/doctest.h"
#include "executor/cuda/generated/compile.h"
#include "narrowcast/plan.h"
#include "plan/builders/builders.h"
#include "plan/handle.h"

namespace narrowcast::executor::cuda::generated {
namespace {

constexpr const char* four_gpus = R"({"narrowcast_machine": 1, "gpus_per_host": 4, "link_gbps": 100,
  "link_packets_gbps": 50, "link_latency_us": 1, "ctas": 64, "cta_move_gbps": 400, "cta_reduce_gbps": 400,
  "cta_encode_gbps": 40, "cta_decode_gbps": 40, "slot_latency_us": 0, "coded_latency_us": 1, "step_us": 0.1,
  "launch_us": 1})";

// A broadcast in a tree, scheduled. Ranks without children have little to do, so their groups are idle in any number
// of instances, and the scheduler tries as many as it may.
plan::Plan scheduled_tree(bool any_executor) {
  plan::Plan tree;
  REQUIRE(plan::builders::build("tree", {.operation = plan::Operation::broadcast, .ranks = 4}, &tree) == NCAST_OK);
  const ncast_plan given(std::move(tree));
  ncast_plan_simulation simulation = {};
  simulation.struct_bytes = sizeof simulation;
  simulation.piece_bytes = 256'000'000;
  simulation.max_instances = 128;
  simulation.any_executor = any_executor ? 1 : 0;
  ncast_plan* scheduled = nullptr;
  ncast_text* report = nullptr;
  REQUIRE(ncast_plan_schedule(&given, four_gpus, &simulation, &scheduled, &report) == NCAST_OK);
  ncast_text_destroy(report);
  plan::Plan result = scheduled->plan;
  ncast_plan_destroy(scheduled);
  return result;
}

ncast_status generate_for(const plan::Plan& plan, ncast_dtype dtype) {
  CompiledPlan generated;
  return generate(plan, {.dtype = dtype, .architecture = 90}, &generated);
}

TEST_CASE("kernels can be generated for scheduled plans, unless any executor may run them") {
  const plan::Plan limited = scheduled_tree(false), unlimited = scheduled_tree(true);
  for (const ncast_dtype dtype : {NCAST_BFLOAT16, NCAST_FLOAT32, NCAST_FLOAT64})
    CHECK(generate_for(limited, dtype) == NCAST_OK);
  CHECK(limited.chunks > 1);  // it was replicated
  CHECK(limited.chunks <= 64);
  CHECK(unlimited.chunks > 64);
  CHECK(generate_for(unlimited, NCAST_BFLOAT16) == NCAST_UNSUPPORTED);
}

}  // namespace
}  // namespace narrowcast::executor::cuda::generated
