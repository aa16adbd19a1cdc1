// When it is decided which plan a call runs, and how long that plan must exist.
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <string>
#include <string_view>
#include <thread>

#include "narrowcast/explain.h"
#include "narrowcast/plan.h"
#include "plan/handle.h"
#include "support/last_error.h"
#include "support/plans.h"
#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

// name: of the plan.
int choose(void* name, const ncast_plan_call* /*call*/, const char* const* plans, int plan_count) {
  for (int i = 0; i < plan_count; ++i)
    if (std::string_view(plans[i]) == static_cast<const char*>(name)) return i;
  return NCAST_PLAN_BUILT_IN;
}

char ring[] = "ring", one_shot[] = "one_shot";

TEST_CASE("a selector does not change calls that were made before it was set") {
  const ncast_unique_id id = new_id();
  std::atomic<bool> is_set = false;
  run_threads(2, [&](int rank) {
    const Comm comm(id, rank, 2);
    const int value = rank;
    int gathered[2][2] = {{-1, -1}, {-1, -1}};
    if (rank == 0) {
      ncast_stream stream = nullptr;
      EXPECT_OK(ncast_stream_create(&stream));
      for (int (&result)[2] : gathered)
        EXPECT_OK(ncast_all_gather(&value, result, 1, NCAST_INT32, NCAST_CODEC_RAW, comm, stream));
      EXPECT_OK(ncast_comm_set_plan_selector(comm, choose, ring));
      is_set = true;
      is_set.notify_all();
      EXPECT_OK(ncast_stream_synchronize(stream));
      EXPECT_OK(ncast_stream_destroy(stream));
    } else {
      is_set.wait(false);
      for (int (&result)[2] : gathered)
        EXPECT_OK(ncast_all_gather(&value, result, 1, NCAST_INT32, NCAST_CODEC_RAW, comm, nullptr));
      EXPECT_OK(ncast_comm_set_plan_selector(comm, choose, ring));
    }
    for (const int (&result)[2] : gathered) EXPECT(result[0] == 0 && result[1] == 1);
    EXPECT_OK(ncast_all_gather(&value, gathered[0], 1, NCAST_INT32, NCAST_CODEC_RAW, comm, nullptr));
  });
}

TEST_CASE("a call fails if there is no memory for the plan that a selector chose") {
  const ncast_unique_id id = new_id();
  run_processes(2, [&](int rank) {
    const Comm comm(id, rank, 2);
    EXPECT_OK(ncast_comm_set_plan_selector(comm, choose, one_shot));
    signal(SIGXFSZ, SIG_IGN);
    const rlimit none = {0, RLIM_INFINITY};
    EXPECT(setrlimit(RLIMIT_FSIZE, &none) == 0);
    int values[2] = {};
    // The error of this rank, or of the other one.
    EXPECT(ncast_all_gather(&rank, values, 1, NCAST_INT32, NCAST_CODEC_RAW, comm, nullptr) != NCAST_OK);
    EXPECT(error_contains("File too large"));
  });
}

TEST_CASE("a selector is not asked about the library's own exchanges") {
  const ncast_unique_id id = new_id();
  run_threads(2, [&](int rank) {
    const Comm comm(id, rank, 2);
    int asked = 0;
    const auto count = [](void* context, const ncast_plan_call*, const char* const*, int) {
      ++*static_cast<int*>(context);
      return int{NCAST_PLAN_BUILT_IN};
    };
    EXPECT_OK(ncast_comm_set_plan_selector(comm, count, &asked));
    EXPECT_OK(ncast_plan_decline(comm, nullptr));
    EXPECT(asked == 0);
  });
}

// The name of the plan that an all-gather of 32-bit integers runs.
std::string plan_of_gather(ncast_comm* comm, uint64_t count) {
  ncast_explanation* explanation = nullptr;
  ncast_decision decision = {};
  decision.struct_bytes = sizeof decision;
  EXPECT_OK(ncast_comm_explain(comm, NCAST_OP_ALL_GATHER, count, NCAST_INT32, NCAST_CODEC_RAW, &explanation));
  EXPECT_OK(ncast_explanation_decision(explanation, &decision));
  const std::string plan = decision.plan == nullptr ? "" : decision.plan;
  ncast_explanation_destroy(explanation);
  return plan;
}

TEST_CASE("the last use of a loaded plan counts, until the plan is destroyed") {
  const ncast_unique_id id = new_id();
  run_threads(2, [&](int rank) {
    const Comm comm(id, rank, 2);
    ncast_plan plan(plan::verify::testing::ring_all_gather(2));
    plan.plan.name = "mine";
    ncast_loaded_plan* loaded = nullptr;
    EXPECT_OK(ncast_plan_load(comm, &plan, NCAST_INT32, NCAST_SUM, &loaded));
    EXPECT(plan_of_gather(comm, 100) != "mine");
    ncast_plan_use use = {sizeof use, 1, 0, 0};
    EXPECT_OK(ncast_loaded_plan_use(loaded, &use));
    EXPECT(plan_of_gather(comm, 100) == "mine");
    use.max_bytes = 100;
    EXPECT_OK(ncast_loaded_plan_use(loaded, &use));
    EXPECT(plan_of_gather(comm, 25) == "mine");
    EXPECT(plan_of_gather(comm, 26) != "mine");
    EXPECT_OK(ncast_loaded_plan_destroy(loaded));
    EXPECT(plan_of_gather(comm, 25) != "mine");
  });
}

TEST_CASE("selectors learn whether a call is in place, if all ranks know it") {
  static thread_local int placement;
  ncast_set_plan_selector(
      [](void*, const ncast_plan_call* call, const char* const*, int) {
        placement = call->placement;
        return int{NCAST_PLAN_BUILT_IN};
      },
      nullptr);
  const ncast_unique_id id = new_id();
  run_threads(2, [&](int rank) {
    const Comm comm(id, rank, 2);
    int values[2] = {}, others[2] = {};
    EXPECT_OK(ncast_all_gather(values, others, 1, NCAST_INT32, NCAST_CODEC_RAW, comm, nullptr));
    EXPECT(placement == NCAST_PLACEMENT_SEPARATE);
    EXPECT_OK(ncast_all_gather(&values[rank], values, 1, NCAST_INT32, NCAST_CODEC_RAW, comm, nullptr));
    EXPECT(placement == NCAST_PLACEMENT_IN_PLACE);
    EXPECT_OK(ncast_broadcast(values, rank == 0 ? values : others, 1, NCAST_INT32, 0, NCAST_CODEC_RAW, comm, nullptr));
    EXPECT(placement == NCAST_PLACEMENT_UNKNOWN);
  });
  ncast_set_plan_selector(nullptr, nullptr);
}

TEST_CASE("a plan cannot be destroyed while a group has calls that run it") {
  const ncast_unique_id id = new_id();
  run_threads(2, [&](int rank) {
    const Comm comm(id, rank, 2);
    const ncast_plan plan(plan::verify::testing::ring_all_gather(2));
    ncast_loaded_plan* loaded = nullptr;
    EXPECT_OK(ncast_plan_load(comm, &plan, NCAST_INT32, NCAST_SUM, &loaded));
    const ncast_plan_use use = {sizeof use, 1, 0, 0};
    EXPECT_OK(ncast_loaded_plan_use(loaded, &use));

    const int value = rank;
    int gathered[2] = {-1, -1};
    EXPECT_OK(ncast_group_start());
    EXPECT_OK(ncast_all_gather(&value, gathered, 1, NCAST_INT32, NCAST_CODEC_RAW, comm, nullptr));
    EXPECT(ncast_loaded_plan_destroy(loaded) == NCAST_INVALID_ARGUMENT);
    EXPECT(error_contains("the open group of this thread"));
    EXPECT_OK(ncast_group_end());
    EXPECT(gathered[0] == 0 && gathered[1] == 1);
    EXPECT_OK(ncast_loaded_plan_destroy(loaded));
  });
}

}  // namespace
}  // namespace narrowcast::testing
