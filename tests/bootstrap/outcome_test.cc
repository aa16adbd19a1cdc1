// Ranks agree on the outcome of a step that each performed on its own.
#include "bootstrap/outcome.h"

#include "rendezvous_ranks.h"
#include "status/error.h"

namespace narrowcast::testing {
namespace {

TEST_CASE("the failure of one rank is returned on all ranks, which can continue") {
  run_threads_with_hub(3, [](const HubAddress& hub, int rank) {
    const auto rendezvous = hub.must_join(rank, 3);
    EXPECT_OK(bootstrap::agree_on_outcome(*rendezvous, NCAST_OK));
    const ncast_status own = rank == 0 ? NCAST_OK : fail(NCAST_UNSUPPORTED, "step failed on %d", rank);
    EXPECT(bootstrap::agree_on_outcome(*rendezvous, own) == NCAST_UNSUPPORTED);
    EXPECT(error_contains("rank 1: step failed on 1"));
    EXPECT_OK(bootstrap::agree_on_outcome(*rendezvous, NCAST_OK));
    EXPECT_OK(rendezvous->check_failure());
  });
}

TEST_CASE("a rank that failed gets its own error even if the others abort") {
  run_threads_with_hub(2, [](const HubAddress& hub, int rank) {
    const auto rendezvous = hub.must_join(rank, 2);
    if (rank == 0) {
      rendezvous->publish_failure(NCAST_ABORTED, "aborted");
      while (rendezvous->check_failure() == NCAST_OK) usleep(1000);
      return;
    }
    while (rendezvous->check_failure() == NCAST_OK) usleep(1000);
    EXPECT(bootstrap::agree_on_outcome(*rendezvous, fail(NCAST_UNSUPPORTED, "a step failed")) == NCAST_UNSUPPORTED);
    EXPECT(error_contains("rank 1: a step failed"));
  });
}

TEST_CASE("a long message is truncated") {
  run_threads_with_hub(1, [](const HubAddress& hub, int) {
    const auto rendezvous = hub.must_join(0, 1);
    const std::string message(400, 'x');
    EXPECT(bootstrap::agree_on_outcome(*rendezvous, fail(NCAST_CORRUPT, "%s", message.c_str())) == NCAST_CORRUPT);
    EXPECT(error_contains("rank 0: xxx"));
    EXPECT(!error_contains(std::string(200, 'x')));
  });
}

}  // namespace
}  // namespace narrowcast::testing
