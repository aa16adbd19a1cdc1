// Loading plans: what the ranks learn of each other's errors, and plans that outlive their communicator.
#include <cstring>
#include <string>
#include <string_view>

#include "comm/idle_comm.h"
#include "executor/registry.h"
#include "narrowcast/plan.h"
#include "plan/builders/builders.h"
#include "plan/handle.h"
#include "support/last_error.h"
#include "support/plans.h"
#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

ncast_plan built(const char* name, int ranks, ncast_codec codec = NCAST_CODEC_RAW) {
  plan::builders::Request request;
  request.operation = plan::Operation::all_reduce;
  request.ranks = ranks;
  request.codec = codec;
  ncast_plan made;
  EXPECT_OK(plan::builders::build(name, request, &made.plan));
  return made;
}

// A plan of which rank 1 does not receive what rank 0 sends.
ncast_plan refuted(int ranks) {
  ncast_plan plan = built("all_pairs", ranks);
  plan.plan.ranks[1].groups[0].steps.pop_back();
  return plan;
}

// Loads on all ranks, of which rank 1 does as load_badly(comm) does. The others must get REMOTE_ERROR at once, with the
// reason, and all can go on.
template <typename LoadBadly>
void check_others_learn(const char* reason, const LoadBadly& load_badly) {
  constexpr int ranks = 3;
  const ncast_unique_id id = new_id();
  const ncast_plan right = built("ring", ranks);
  run_threads(ranks, [&](int rank) {
    // Less time than the limit of the test: a rank that waits for another one fails it.
    const Comm comm(id, rank, ranks, {.timeout_seconds = 50});
    ncast_loaded_plan* loaded = nullptr;
    if (rank == 1) {
      load_badly(static_cast<ncast_comm*>(comm));
    } else {
      EXPECT(ncast_plan_load(comm, &right, NCAST_FLOAT32, NCAST_SUM, &loaded) == NCAST_REMOTE_ERROR);
      EXPECT(error_contains("rank 1 cannot load the plan: "));
      EXPECT(error_contains(reason));
    }
    EXPECT(loaded == nullptr);
    EXPECT_OK(ncast_plan_load(comm, &right, NCAST_FLOAT32, NCAST_SUM, &loaded));
    float values[5] = {1, 2, 3, 4, 5};
    EXPECT_OK(ncast_loaded_plan_run(loaded, values, values, 5, nullptr));
    EXPECT(values[4] == 15);
    EXPECT_OK(ncast_loaded_plan_destroy(loaded));
  });
}

TEST_CASE("all ranks learn at once why a rank cannot load its plan") {
  const auto load = [](const ncast_plan* plan, ncast_dtype dtype) {
    return [=](ncast_comm* comm) {
      ncast_loaded_plan* loaded = nullptr;
      EXPECT(ncast_plan_load(comm, plan, dtype, NCAST_SUM, &loaded) == NCAST_INVALID_ARGUMENT);
      EXPECT(error_contains("ncast_plan_load: "));
    };
  };
  const ncast_plan wrong = refuted(3), small = built("ring", 2), right = built("ring", 3);
  const ncast_plan lossy = built("ring", 3, NCAST_CODEC_INT6);
  check_others_learn("is wrong (structure)", load(&wrong, NCAST_FLOAT32));
  check_others_learn("the plan has 2 ranks, and the communicator 3", load(&small, NCAST_FLOAT32));
  check_others_learn("plan is NULL", load(nullptr, NCAST_FLOAT32));
  check_others_learn("dtype is 99", load(&right, static_cast<ncast_dtype>(99)));
  check_others_learn("all_reduce (sum) of int32 cannot use codec int6", load(&lossy, NCAST_INT32));
  check_others_learn("cannot open ring.json",
                     [](ncast_comm* comm) { EXPECT_OK(ncast_plan_decline(comm, "cannot open ring.json")); });
  check_others_learn("no reason given", [](ncast_comm* comm) { EXPECT_OK(ncast_plan_decline(comm, nullptr)); });
}

// Another rank that has got the error may abort the communicator before this one has returned from the exchange.
TEST_CASE("a rank that cannot load a plan gets its own error, also if the others have one or abort") {
  const ncast_unique_id id = new_id();
  run_threads(2, [&](int rank) {
    const Comm comm(id, rank, 2);
    const ncast_plan wrong = refuted(2);
    ncast_loaded_plan* loaded = nullptr;
    EXPECT(ncast_plan_load(comm, &wrong, NCAST_FLOAT32, NCAST_SUM, &loaded) == NCAST_INVALID_ARGUMENT);
    EXPECT(error_contains("is wrong"));
    if (rank == 0) {
      EXPECT_OK(ncast_comm_abort(comm));
      return;
    }
    while (ncast_comm_async_error(comm, nullptr, 0) == NCAST_OK) usleep(1000);
    EXPECT(ncast_plan_load(comm, nullptr, NCAST_FLOAT32, NCAST_SUM, &loaded) == NCAST_INVALID_ARGUMENT);
    EXPECT(error_contains("plan is NULL"));
  });
}

TEST_CASE("ranks that load a plan for different types or reductions get a mismatch") {
  const ncast_unique_id id = new_id();
  run_threads(2, [&](int rank) {
    const Comm comm(id, rank, 2);
    const ncast_plan plan = built("ring", 2);
    const auto load = [&](ncast_dtype dtype, ncast_redop op) {
      ncast_loaded_plan* loaded = nullptr;
      EXPECT(ncast_plan_load(comm, &plan, dtype, op, &loaded) == NCAST_MISMATCH);
      EXPECT(error_contains("ranks load different plans, types or reductions"));
    };
    load(rank == 0 ? NCAST_INT32 : NCAST_UINT32, NCAST_SUM);
    load(NCAST_INT32, rank == 0 ? NCAST_SUM : NCAST_MAX);
  });
}

TEST_CASE("the buffers of a plan are checked as those of its operation, for its root") {
  const ncast_unique_id id = new_id();
  run_threads(2, [&](int rank) {
    const Comm comm(id, rank, 2);
    const ncast_plan broadcast(plan::verify::testing::tree_broadcast(2, 1));
    ncast_loaded_plan* loaded = nullptr;
    EXPECT_OK(ncast_plan_load(comm, &broadcast, NCAST_INT32, NCAST_SUM, &loaded));
    const int sent = 7;
    int received = 0;
    if (rank == 1) EXPECT(ncast_loaded_plan_run(loaded, nullptr, &received, 1, nullptr) == NCAST_INVALID_ARGUMENT);
    EXPECT_OK(ncast_group_start());
    EXPECT(ncast_loaded_plan_run(loaded, &sent, &received, 1, nullptr) == NCAST_INVALID_ARGUMENT);
    EXPECT(error_contains("plans cannot run in a group"));
    EXPECT_OK(ncast_group_end());
    EXPECT_OK(ncast_loaded_plan_run(loaded, rank == 1 ? &sent : nullptr, &received, 1, nullptr));
    EXPECT(received == sent);
    EXPECT_OK(ncast_loaded_plan_destroy(loaded));

    const ncast_plan exchange(plan::verify::testing::port_all_to_all(2));
    EXPECT_OK(ncast_plan_load(comm, &exchange, NCAST_INT32, NCAST_SUM, &loaded));
    int values[2] = {};
    EXPECT(ncast_loaded_plan_run(loaded, values, values, 1, nullptr) == NCAST_INVALID_ARGUMENT);
    EXPECT(error_contains(", but the operation does not work in place"));
    EXPECT_OK(ncast_loaded_plan_destroy(loaded));
  });
}

// A communicator of one rank whose plans count what happens to them. All of them have the same address.
class FakeComm final : public IdleComm {
 public:
  static inline int runs = 0, releases = 0;

  FakeComm() : IdleComm(0, 1) {}

  static void* operator new(size_t) { return memory; }
  static void operator delete(void*) {}

  ncast_status exchange(const void* mine, size_t bytes, void* all) override {
    std::memcpy(all, mine, bytes);
    return NCAST_OK;
  }
  ncast_status prepare_plan(const plan::Plan&, const plan::verify::Report&, ncast_dtype, ncast_redop,
                            std::unique_ptr<executor::LoadedPlan>* prepared) override {
    *prepared = std::make_unique<FakePlan>();
    return NCAST_OK;
  }

 private:
  class FakePlan final : public executor::LoadedPlan {
   public:
    ncast_status load() override { return NCAST_OK; }
    ncast_status run(const executor::Call&) override { return ++runs, NCAST_OK; }
    ncast_status release() override { return ++releases, NCAST_OK; }
  };

  alignas(std::max_align_t) static unsigned char memory[];
};
alignas(std::max_align_t) unsigned char FakeComm::memory[sizeof(FakeComm)];

TEST_CASE("a plan does not run on a communicator that has the address of its own one, which was destroyed") {
  ncast_comm* comm = new FakeComm;
  executor::add_communicator(comm);
  const ncast_plan plan = built("all_pairs", 1);
  ncast_loaded_plan* loaded = nullptr;
  REQUIRE(ncast_plan_load(comm, &plan, NCAST_FLOAT32, NCAST_SUM, &loaded) == NCAST_OK);
  float value = 1;
  REQUIRE(ncast_loaded_plan_run(loaded, &value, &value, 1, nullptr) == NCAST_OK);
  CHECK(FakeComm::runs == 1);
  REQUIRE(ncast_comm_destroy(comm) == NCAST_OK);

  ncast_comm* next = new FakeComm;
  REQUIRE(next == comm);
  executor::add_communicator(next);
  CHECK(ncast_loaded_plan_run(loaded, &value, &value, 1, nullptr) == NCAST_INVALID_ARGUMENT);
  CHECK(error_contains("has been destroyed"));
  CHECK(ncast_loaded_plan_destroy(loaded) == NCAST_OK);
  CHECK(FakeComm::runs == 1);
  CHECK(FakeComm::releases == 0);
  CHECK(ncast_comm_destroy(next) == NCAST_OK);
}

}  // namespace
}  // namespace narrowcast::testing
