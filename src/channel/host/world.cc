#include "channel/host/world.h"

#include <cstdio>
#include <cstring>

#include "status/error.h"

namespace narrowcast::channel {

World::~World() {
  if (!joined_) return;
  control_->owners.owner[rank_].state.store(bootstrap::SegmentOwners::left, std::memory_order_seq_cst);
  ring_all();
}

void World::ring_all() {
  for (int peer = 0; peer < ranks_; ++peer) control_->member[peer].bell.ring();
}

bool World::publish_failure(ncast_status status, const char* sentence) {
  FailureRecord& record = control_->failure;
  uint32_t expected = FailureRecord::none;
  if (!record.state.compare_exchange_strong(expected, FailureRecord::writing)) return false;
  record.status = static_cast<uint32_t>(status);
  record.rank = rank_;
  std::snprintf(record.sentence, sizeof record.sentence, "%s", sentence);
  record.state.store(FailureRecord::published, std::memory_order_release);
  ring_all();
  return true;
}

ncast_status World::check_failure() const {
  const FailureRecord& record = control_->failure;
  if (record.state.load(std::memory_order_acquire) != FailureRecord::published) return NCAST_OK;
  const auto status = static_cast<ncast_status>(record.status);
  if (status == NCAST_ABORTED) return fail(NCAST_ABORTED, "rank %d aborted the communicator", record.rank);
  return fail(status == NCAST_MISMATCH ? NCAST_MISMATCH : NCAST_REMOTE_ERROR, "rank %d reports: %s", record.rank,
              record.sentence);
}

void World::post(const Tag& tag) {
  Post& post = control_->member[rank_].post;
  uint64_t words[Post::words];
  std::memcpy(words, tag.bytes, sizeof words);
  const uint64_t version = post.version.load(std::memory_order_relaxed);
  post.version.store(version + 1, std::memory_order_seq_cst);
  for (size_t i = 0; i < Post::words; ++i) post.word[i].store(words[i], std::memory_order_seq_cst);
  post.version.store(version + 2, std::memory_order_seq_cst);
}

bool World::posted_by(int peer, Tag* tag) const {
  const Post& post = control_->member[peer].post;
  uint64_t words[Post::words];
  const uint64_t version = post.version.load(std::memory_order_seq_cst);
  for (size_t i = 0; i < Post::words; ++i) words[i] = post.word[i].load(std::memory_order_seq_cst);
  if (version == 0 || version % 2 != 0 || post.version.load(std::memory_order_seq_cst) != version) return false;
  std::memcpy(tag->bytes, words, sizeof words);
  return true;
}

RankSet World::left() const {
  RankSet set = 0;
  for (int peer = 0; peer < ranks_; ++peer) {
    if (control_->owners.owner[peer].state.load(std::memory_order_seq_cst) == bootstrap::SegmentOwners::left)
      set |= only(peer);
  }
  return set;
}

RankSet World::dead() const {
  RankSet set = 0;
  for (int peer = 0; peer < ranks_; ++peer) {
    const bootstrap::SegmentOwners::Owner& owner = control_->owners.owner[peer];
    if (peer == rank_ || owner.state.load(std::memory_order_acquire) != bootstrap::SegmentOwners::joined) continue;
    // Dead, and still joined afterwards: not one that left and then ended.
    if (!bootstrap::is_alive(owner.process) &&
        owner.state.load(std::memory_order_seq_cst) == bootstrap::SegmentOwners::joined) {
      set |= only(peer);
    }
  }
  return set;
}

}  // namespace narrowcast::channel
