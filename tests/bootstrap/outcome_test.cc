// What ranks tell each other of what each did for itself.
#include "bootstrap/outcome.h"

#include "rendezvous_ranks.h"
#include "status/error.h"

namespace narrowcast::testing {
namespace {

TEST_CASE("AllRanksLearnOfWhatOneOfThemCannotDoAndGoOn") {
  run_threads_with_hub(3, [](const Meeting& meeting, int rank) {
    const auto rendezvous = meeting.joined(rank, 3);
    EXPECT_OK(bootstrap::agree_on_outcome(*rendezvous, NCAST_OK));
    const ncast_status own = rank == 0 ? NCAST_OK : fail(NCAST_UNSUPPORTED, "there is no way, says %d", rank);
    EXPECT(bootstrap::agree_on_outcome(*rendezvous, own) == NCAST_UNSUPPORTED);
    EXPECT(sentence_has("rank 1: there is no way, says 1"));
    EXPECT_OK(bootstrap::agree_on_outcome(*rendezvous, NCAST_OK));
    EXPECT_OK(rendezvous->check_failure());
  });
}

TEST_CASE("ALongSentenceIsCut") {
  run_threads_with_hub(1, [](const Meeting& meeting, int) {
    const auto rendezvous = meeting.joined(0, 1);
    const std::string sentence(400, 'x');
    EXPECT(bootstrap::agree_on_outcome(*rendezvous, fail(NCAST_CORRUPT, "%s", sentence.c_str())) == NCAST_CORRUPT);
    EXPECT(sentence_has("rank 0: xxx"));
    EXPECT(!sentence_has(std::string(200, 'x')));
  });
}

}  // namespace
}  // namespace narrowcast::testing
