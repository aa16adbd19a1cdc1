#include "channel/host/bounded_wait.h"

#include <algorithm>
#include <bit>

#include "bootstrap/interrupt.h"
#include "status/error.h"

namespace narrowcast::channel {

ncast_status BoundedWait::begin_poll() {
  epoch_ = world_.bell().epoch();
  if (ncast_status status = world_.check_failure()) return status;
  left_ = world_.left();
  inspecting_ = false;
  // A short call never reads the clock: it would take 5% of its time.
  if (!stalled_ && ++busy_polls_ % busy_polls_per_check != 0) return NCAST_OK;
  const auto now = bootstrap::Clock::now();
  if (last_interrupt_check_ == bootstrap::Clock::time_point{}) last_interrupt_check_ = now;
  if (now - last_interrupt_check_ >= bootstrap::interrupt_interval) {
    last_interrupt_check_ = now;
    if (bootstrap::is_interrupted()) return bootstrap::interrupted();
  }
  inspecting_ = stalled_ && now - last_inspection_ >= inspection_interval;
  if (inspecting_) {
    last_inspection_ = now;
    dead_ = world_.dead();
  }
  return NCAST_OK;
}

ncast_status BoundedWait::no_progress(RankSet awaited) {
  if (!stalled_) {
    stalled_ = true;
    stalled_since_ = last_inspection_ = bootstrap::Clock::now();
    return NCAST_OK;
  }
  // A failure that a rank published before it ended is visible by now. It is more informative than the fact of its end.
  if ((dead_ | left_) != 0) {
    if (ncast_status status = world_.check_failure()) return status;
  }
  for (int peer = 0; peer < world_.ranks(); ++peer) {
    const RankSet bit = rank_bit(peer);
    if ((dead_ & bit) != 0 && ((awaited & bit) != 0 || world_.in_call(peer))) {
      return world_.fail_of_dead(peer);
    }
    if ((left_ & awaited & bit) != 0) {
      return fail(NCAST_REMOTE_ERROR, "%s destroyed its communicator while rank %d was waiting for it",
                  world_.name_of(peer).c_str(), world_.rank());
    }
  }
  if (awaited != 0 && limit_.passed(stalled_since_)) {
    const int peer = std::countr_zero(awaited);
    // Whether a rank of another host is alive cannot be known at once.
    const bool is_alive = world_.host_of(peer) == world_.host_of(world_.rank());
    return fail(NCAST_TIMEOUT, "rank %d waited %g s for %s%s", world_.rank(), limit_.seconds,
                world_.name_of(peer).c_str(), is_alive ? ", which is alive" : "");
  }
  return NCAST_OK;
}

}  // namespace narrowcast::channel
