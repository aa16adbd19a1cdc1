// Waits for peers. A wait ends with an error if a peer dies or leaves, on an abort or an interruption, and at the time
// limit.
#pragma once

#include <algorithm>

#include "channel/host/world.h"

namespace narrowcast::channel {

// Use it in a loop: begin_poll(); poll everything; then made_progress(), or no_progress() and sleep().
class BoundedWait {
 public:
  BoundedWait(World& world, bootstrap::Limit limit) : world_(world), limit_(limit) {}

  // Call before polling. Fails if any rank has failed or aborted, or if this thread is interrupted. It also records
  // which peers have left or died; no_progress() reports them, but only if the poll in between found nothing that they
  // did before.
  ncast_status begin_poll();

  void made_progress() { stalled_ = false; }

  // Call after a poll that found nothing. Fails if a rank in `awaited` has left or died, if any rank has died inside a
  // call, or if there has been no progress for the time limit.
  ncast_status no_progress(RankSet awaited);

  // Whether this iteration inspects the peers, which happens at intervals while there is no progress. Valid after
  // begin_poll().
  bool is_inspecting() const { return inspecting_; }

  // Sleeps until a peer notifies this rank, for at most `longest` or until the next inspection.
  void sleep(bootstrap::Nanoseconds longest) {
    world_.bell().wait(epoch_, std::min(longest, bootstrap::Nanoseconds(inspection_interval)));
  }

 private:
  static constexpr std::chrono::milliseconds inspection_interval{50};
  static constexpr uint32_t busy_polls_per_check = 64;

  World& world_;
  bootstrap::Limit limit_;
  uint32_t epoch_ = 0;  // of this rank's bell, before the poll
  RankSet left_ = 0;
  RankSet dead_ = 0;
  bool stalled_ = false;
  bool inspecting_ = false;
  bootstrap::Clock::time_point stalled_since_;
  bootstrap::Clock::time_point last_inspection_;
  bootstrap::Clock::time_point last_interrupt_check_;  // or the first poll that could have checked
  uint32_t busy_polls_ = 0;                            // that were not preceded by one without progress
};

}  // namespace narrowcast::channel
