#include "channel/host/world.h"

#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "bootstrap/peer_failure.h"
#include "status/error.h"

namespace narrowcast::channel {

void PublishedTag::store(const Tag& tag) {
  uint64_t words[PublishedTag::words];
  std::memcpy(words, tag.bytes, sizeof words);
  const uint64_t version = version_.load(std::memory_order_relaxed);
  version_.store(version + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  for (size_t i = 0; i < PublishedTag::words; ++i) word_[i].store(words[i], std::memory_order_relaxed);
  version_.store(version + 2, std::memory_order_release);
}

bool PublishedTag::load(Tag* tag) const {
  uint64_t words[PublishedTag::words];
  const uint64_t version = version_.load(std::memory_order_acquire);
  for (size_t i = 0; i < PublishedTag::words; ++i) words[i] = word_[i].load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (version == 0 || version % 2 != 0 || version_.load(std::memory_order_relaxed) != version) return false;
  std::memcpy(tag->bytes, words, sizeof words);
  return true;
}

World::~World() {
  if (!joined_) return;
  control_->owners.owner[rank_].state.store(bootstrap::SegmentOwners::left, std::memory_order_seq_cst);
  wake_peers();
}

ncast_status World::add_region(size_t bytes, bootstrap::SharedRange* region) {
  const uint64_t offset_bytes = end_bytes_;
  end_bytes_ += SegmentLayout::round_up(bytes);
  return memory_.map_range(offset_bytes, bytes, region);
}

void World::wake_peers() {
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer != rank_) control_->member[peer].bell.notify();
  }
}

bool World::publish_failure(ncast_status status, const char* message) {
  FailureRecord& record = control_->failure;
  uint32_t expected = FailureRecord::none;
  if (!record.state.compare_exchange_strong(expected, FailureRecord::writing)) return false;
  record.status = static_cast<uint32_t>(status);
  record.rank = rank_;
  std::snprintf(record.message, sizeof record.message, "%s", message);
  record.state.store(FailureRecord::published, std::memory_order_release);
  wake_peers();
  bell().notify();  // for an abort by another thread of this rank
  return true;
}

ncast_status World::check_failure() const {
  const FailureRecord& record = control_->failure;
  if (record.state.load(std::memory_order_acquire) != FailureRecord::published) return NCAST_OK;
  return bootstrap::fail_of_rank(static_cast<ncast_status>(record.status), record.rank, record.message);
}

ncast_status World::fail_of_dead(int peer) const {
  return fail(NCAST_REMOTE_ERROR, "rank %d (pid %" PRId64 ") died", peer, pid_of(peer));
}

RankSet World::left() const {
  RankSet set = 0;
  for (int peer = 0; peer < ranks_; ++peer) {
    if (control_->owners.owner[peer].state.load(std::memory_order_seq_cst) == bootstrap::SegmentOwners::left)
      set |= rank_bit(peer);
  }
  return set;
}

RankSet World::dead() const {
  RankSet set = 0;
  for (int peer = 0; peer < ranks_; ++peer) {
    const bootstrap::SegmentOwners::Owner& owner = control_->owners.owner[peer];
    if (peer == rank_ || owner.state.load(std::memory_order_acquire) != bootstrap::SegmentOwners::joined) continue;
    // If the state is still `joined`, the process did not leave before it ended.
    if (!bootstrap::is_alive(owner.process) &&
        owner.state.load(std::memory_order_seq_cst) == bootstrap::SegmentOwners::joined) {
      set |= rank_bit(peer);
    }
  }
  return set;
}

}  // namespace narrowcast::channel
