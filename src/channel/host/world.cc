#include "channel/host/world.h"

#include <algorithm>
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

void World::set_hosts(std::span<const uint64_t> hosts) {
  hosts_ = 0;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto first = static_cast<size_t>(std::ranges::find(hosts, hosts[rank]) - hosts.begin());
    host_of_[rank] = first == rank ? hosts_++ : host_of_[first];
  }
}

void World::use(ControlBlock* control) {
  control_ = control;
  blocks_.assign(static_cast<size_t>(ranks_), control);
  bells_.clear();
  for (int rank = 0; rank < ranks_; ++rank) bells_.push_back(&control->member[rank].bell);
}

void World::use_link(int peer, ControlBlock* control, Doorbell& bell) {
  blocks_[static_cast<size_t>(peer)] = control;
  bells_[static_cast<size_t>(peer)] = &bell;
}

void World::add_rings(void* to, void* from, const RingShape& shape) {
  Doorbell* const bell = bells_[senders_.size()];
  senders_.emplace_back(to, shape, bell);
  receivers_.emplace_back(from, shape, bell);
}

void World::wake_peers() {
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer != rank_) bell_of(peer).notify();
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

RankSet World::left() const {
  RankSet set = 0;
  for (int peer = 0; peer < ranks_; ++peer) {
    const bootstrap::SegmentOwners& owners = blocks_[static_cast<size_t>(peer)]->owners;
    if (owners.owner[peer].state.load(std::memory_order_seq_cst) == bootstrap::SegmentOwners::left)
      set |= rank_bit(peer);
  }
  return set;
}

}  // namespace narrowcast::channel
