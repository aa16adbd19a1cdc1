// When it is decided which plan a call runs, and how long that plan must exist.
#include <atomic>
#include <string_view>
#include <thread>

#include "narrowcast/plan.h"
#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

int choose_ring(void* /*context*/, const ncast_plan_call* /*call*/, const char* const* plans, int plan_count) {
  for (int i = 0; i < plan_count; ++i)
    if (std::string_view(plans[i]) == "ring") return i;
  return NCAST_PLAN_BUILT_IN;
}

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
      EXPECT_OK(ncast_comm_set_plan_selector(comm, choose_ring, nullptr));
      is_set = true;
      is_set.notify_all();
      EXPECT_OK(ncast_stream_synchronize(stream));
      EXPECT_OK(ncast_stream_destroy(stream));
    } else {
      is_set.wait(false);
      for (int (&result)[2] : gathered)
        EXPECT_OK(ncast_all_gather(&value, result, 1, NCAST_INT32, NCAST_CODEC_RAW, comm, nullptr));
      EXPECT_OK(ncast_comm_set_plan_selector(comm, choose_ring, nullptr));
    }
    for (const int (&result)[2] : gathered) EXPECT(result[0] == 0 && result[1] == 1);
    EXPECT_OK(ncast_all_gather(&value, gathered[0], 1, NCAST_INT32, NCAST_CODEC_RAW, comm, nullptr));
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

TEST_CASE("a plan cannot be destroyed while a group has calls that run it") {
  const ncast_unique_id id = new_id();
  run_threads(2, [&](int rank) {
    const Comm comm(id, rank, 2);
    ncast_plan_request request = {};
    request.struct_bytes = sizeof request;
    request.operation = NCAST_OP_ALL_GATHER;
    request.ranks = 2;
    ncast_plan* plan = nullptr;
    EXPECT_OK(ncast_plan_build("ring", &request, &plan));
    ncast_loaded_plan* loaded = nullptr;
    EXPECT_OK(ncast_plan_load(comm, plan, NCAST_INT32, NCAST_SUM, &loaded));
    ncast_plan_destroy(plan);
    ncast_plan_use use = {};
    use.struct_bytes = sizeof use;
    use.always = 1;
    EXPECT_OK(ncast_loaded_plan_use(loaded, &use));

    const int value = rank;
    int gathered[2] = {-1, -1};
    EXPECT_OK(ncast_group_start());
    EXPECT_OK(ncast_all_gather(&value, gathered, 1, NCAST_INT32, NCAST_CODEC_RAW, comm, nullptr));
    EXPECT(ncast_loaded_plan_destroy(loaded) == NCAST_INVALID_ARGUMENT);
    EXPECT(std::string_view(ncast_last_error()).find("the open group of this thread") != std::string_view::npos);
    EXPECT_OK(ncast_group_end());
    EXPECT(gathered[0] == 0 && gathered[1] == 1);
    EXPECT_OK(ncast_loaded_plan_destroy(loaded));
  });
}

}  // namespace
}  // namespace narrowcast::testing
