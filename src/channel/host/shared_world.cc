#include "channel/host/shared_world.h"

#include "status/error.h"

namespace narrowcast::channel {

SharedWorld::~SharedWorld() { leave(); }

void SharedWorld::leave() {
  if (!joined_) return;
  joined_ = false;
  control_->owners.owner[rank_].state.store(bootstrap::SegmentOwners::left, std::memory_order_seq_cst);
  wake_peers();
}

ncast_status SharedWorld::add_region(size_t bytes, bootstrap::SharedRange* region) {
  const uint64_t offset_bytes = end_bytes_;
  end_bytes_ += SegmentLayout::round_up(bytes);
  return memory_.map_range(offset_bytes, bytes, region);
}

ncast_status SharedWorld::fail_of_dead(int peer) const {
  return fail(NCAST_REMOTE_ERROR, "%s died", name_of(peer).c_str());
}

std::string SharedWorld::name_of(int peer) const {
  return "rank " + std::to_string(peer) + " (pid " + std::to_string(control_->owners.owner[peer].process.pid) + ")";
}

RankSet SharedWorld::dead() const {
  RankSet set = 0;
  for (int peer = 0; peer < ranks_; ++peer) {
    const bootstrap::SegmentOwners::Owner& owner = control_->owners.owner[peer];
    if (peer == rank_ || !is_local(peer) ||
        owner.state.load(std::memory_order_acquire) != bootstrap::SegmentOwners::joined)
      continue;
    // If the state is still `joined`, the process did not leave before it ended.
    if (!bootstrap::is_alive(owner.process) &&
        owner.state.load(std::memory_order_seq_cst) == bootstrap::SegmentOwners::joined) {
      set |= rank_bit(peer);
    }
  }
  return set;
}

}  // namespace narrowcast::channel
