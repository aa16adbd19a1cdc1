// Which functions may be called while a communicator is being destroyed.
#include "executor/registry.h"

#include <atomic>
#include <thread>

#include "comm/idle_comm.h"
#include "status/error.h"
#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

// A communicator whose leave_ranks() waits for another rank until it is aborted.
class WaitingComm final : public IdleComm {
 public:
  WaitingComm(std::atomic<bool>* leaves, std::atomic<bool>* gone) : IdleComm(0, 2), leaves_(leaves), gone_(gone) {}
  ~WaitingComm() override { *gone_ = true; }

  ncast_status abort() override {
    aborted_ = true;
    return NCAST_OK;
  }
  ncast_status wait_until_idle() override { return fail(NCAST_CUDA_ERROR, "the calls have failed"); }
  void leave_ranks() override {
    *leaves_ = true;
    while (!aborted_) usleep(1000);
    static_cast<void>(fail(NCAST_ABORTED, "aborted"));
  }

 private:
  std::atomic<bool>* leaves_;
  std::atomic<bool>* gone_;
  std::atomic<bool> aborted_ = false;
};

TEST_CASE("an abort ends a destruction that waits for the other ranks") {
  const TimeLimit limit;
  std::atomic<bool> leaves = false, gone = false;
  auto* const comm = new WaitingComm(&leaves, &gone);
  executor::add_communicator(comm);
  std::thread destroyer([&] {
    EXPECT(ncast_comm_destroy(comm) == NCAST_CUDA_ERROR);
    EXPECT(std::string(ncast_last_error()) == "the calls have failed");
  });
  while (!leaves) usleep(1000);
  CHECK(ncast_comm_async_error(comm, nullptr, 0) == NCAST_INVALID_ARGUMENT);
  CHECK(ncast_comm_destroy(comm) == NCAST_INVALID_ARGUMENT);
  CHECK(!gone);
  CHECK(ncast_comm_abort(comm) == NCAST_OK);
  destroyer.join();
  CHECK(gone);
  CHECK(ncast_comm_abort(comm) == NCAST_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace narrowcast::testing
