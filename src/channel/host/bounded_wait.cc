#include "channel/host/bounded_wait.h"

#include <algorithm>
#include <bit>
#include <cinttypes>

#include "status/error.h"

namespace narrowcast::channel {

ncast_status BoundedWait::look() {
  seen_ = world_.bell().look();
  if (ncast_status status = world_.check_failure()) return status;
  left_ = world_.left();
  inspecting_ = stalled_ && bootstrap::Clock::now() - inspected_ >= inspection_interval;
  if (inspecting_) {
    inspected_ = bootstrap::Clock::now();
    dead_ = world_.dead();
  }
  return NCAST_OK;
}

ncast_status BoundedWait::nothing_moved(RankSet awaited) {
  if (!stalled_) {
    stalled_ = true;
    stalled_since_ = inspected_ = bootstrap::Clock::now();
    dead_ = 0;
    return NCAST_OK;
  }
  // A failure that the rank published before it ended is visible now, and says more than that it ended.
  if ((dead_ | left_) != 0) {
    if (ncast_status status = world_.check_failure()) return status;
  }
  for (int peer = 0; peer < world_.ranks(); ++peer) {
    const RankSet bit = only(peer);
    if ((dead_ & bit) != 0 && ((awaited & bit) != 0 || world_.in_call(peer))) {
      return fail(NCAST_REMOTE_ERROR, "rank %d (pid %" PRId64 ") died", peer, world_.pid_of(peer));
    }
    if ((left_ & awaited & bit) != 0) {
      return fail(NCAST_REMOTE_ERROR, "rank %d (pid %" PRId64 ") destroyed its communicator while rank %d waits for it",
                  peer, world_.pid_of(peer), world_.rank());
    }
  }
  if (awaited != 0 && limit_.passed(stalled_since_)) {
    const int peer = std::countr_zero(awaited);
    return fail(NCAST_TIMEOUT, "rank %d waited %g s for rank %d (pid %" PRId64 ", alive)", world_.rank(),
                limit_.seconds, peer, world_.pid_of(peer));
  }
  return NCAST_OK;
}

}  // namespace narrowcast::channel
