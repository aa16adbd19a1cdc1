// Waits for peers. A wait ends when a peer dies or leaves, at an abort, or at the time limit.
#pragma once

#include <algorithm>

#include "channel/host/world.h"

namespace narrowcast::channel {

// For a loop of: look(); poll everything; then moved(), or nothing_moved() and sleep().
class BoundedWait {
 public:
  BoundedWait(World& world, bootstrap::Limit limit) : world_(world), limit_(limit) {}

  // Before polling. Fails when any rank has failed or aborted. What is seen of the peers here is judged only after the
  // poll: the last thing that a peer did before it went may be what the poll finds.
  ncast_status look();

  void moved() { stalled_ = false; }

  // After a poll that found nothing. Fails when a rank of `awaited` is gone, when any rank died inside a call, or when
  // nothing has moved for as long as the limit says.
  ncast_status nothing_moved(RankSet awaited);

  // True every so often while nothing moves, right after nothing_moved().
  bool time_to_inspect() const { return inspecting_; }

  // Until a peer does something, `longest` at most, or it is time to inspect the peers again.
  void sleep(bootstrap::Nanoseconds longest) {
    world_.bell().wait(seen_, std::min(longest, bootstrap::Nanoseconds(inspection_interval)));
  }

 private:
  static constexpr std::chrono::milliseconds inspection_interval{50};

  World& world_;
  bootstrap::Limit limit_;
  uint32_t seen_ = 0;
  RankSet left_ = 0;
  RankSet dead_ = 0;
  bool stalled_ = false;
  bool inspecting_ = false;
  bootstrap::Clock::time_point stalled_since_;
  bootstrap::Clock::time_point inspected_;
};

}  // namespace narrowcast::channel
