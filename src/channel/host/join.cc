// Joining a world. The first rank creates the segment and publishes it under a name that is derived from the unique id.
// All users can list /dev/shm, so the name does not reveal the id. The other ranks open the segment. The last rank to
// join removes the name, so no segment remains in /dev/shm if the ranks are killed afterwards. Only then do the ranks
// compare their settings and allocate their rings.
#include <cinttypes>
#include <string_view>

#include "bootstrap/interrupt.h"
#include "bootstrap/rank_list.h"
#include "channel/host/failure_notice.h"
#include "channel/host/shared_world.h"
#include "digest/sha256.h"
#include "status/error.h"

namespace narrowcast::channel {
namespace {

constexpr std::chrono::milliseconds inspection_interval{50};

}  // namespace

std::string segment_name(const bootstrap::WorldId& id) {
  const std::string_view secret(reinterpret_cast<const char*>(id.data()), sizeof id);
  return bootstrap::segment_prefix + digest::hex(digest::sha256("narrowcast host segment", secret), 32);
}

ncast_status SharedWorld::join(const bootstrap::WorldId& id, const WorldOptions& options,
                               std::unique_ptr<World>* result) {
  bootstrap::sweep_stale_segments();
  sweep_failure_notices();
  std::unique_ptr<SharedWorld> world(new SharedWorld(options.rank, options.ranks));
  if (ncast_status status = world->join_segment(id, world->all_ranks(), nullptr, options)) return status;
  for (int peer = 0; peer < options.ranks; ++peer) {
    const bool is_self = peer == options.rank;
    world->add_rings(is_self ? nullptr : world->ring(options.rank, peer, options.shape),
                     is_self ? nullptr : world->ring(peer, options.rank, options.shape), options.shape);
  }
  *result = std::move(world);
  return NCAST_OK;
}

ncast_status SharedWorld::join_segment(const bootstrap::WorldId& id, RankSet local, bootstrap::Rendezvous* rendezvous,
                                       const WorldOptions& options) {
  id_ = id;
  local_ = local;
  rendezvous_ = rendezvous;
  const ncast_status status = meet(options);
  if (status != NCAST_OK) give_up(status);
  rendezvous_ = nullptr;
  return status;
}

void SharedWorld::decline(const bootstrap::WorldId& id, int rank, ncast_status status) {
  leave_failure_notice(id, rank, status, ncast_last_error());
}

ncast_status SharedWorld::meet(const WorldOptions& options) {
  const auto start = bootstrap::Clock::now();
  if (ncast_status status = check_others()) return status;
  if (ncast_status status = create_or_open(options)) return status;
  if (ncast_status status = enter(options)) return status;
  const auto all_have_joined = [this] { return control_->complete.load(std::memory_order_seq_cst) != 0; };
  if (ncast_status status = wait_for_all(all_have_joined, control_->joined, {options.limit, start})) return status;
  // From here on every rank has the segment, and sees every failure in it.
  if (rendezvous_ == nullptr) {  // otherwise they have been compared there
    std::vector<bootstrap::SharedSettings> settings;
    settings.reserve(static_cast<size_t>(ranks_));
    for (int rank = 0; rank < ranks_; ++rank) settings.push_back(control_->member[rank].settings);
    if (ncast_status status = bootstrap::check_same_settings(settings)) return status;
  }
  if (ncast_status status = allocate_rings(options)) return status;
  const auto all_are_ready = [this] { return control_->ready.load(std::memory_order_seq_cst) == local_; };
  control_->ready.fetch_or(rank_bit(rank_), std::memory_order_seq_cst);
  wake_peers();
  return wait_for_all(all_are_ready, control_->ready, {options.limit, start});
}

// Informs the other ranks.
void SharedWorld::give_up(ncast_status status) {
  const std::string message = ncast_last_error();
  const bool is_first = control_ == nullptr || publish_failure(status, message.c_str());
  const bool all_have_joined = control_ != nullptr && control_->complete.load(std::memory_order_seq_cst) != 0;
  if (is_first && !all_have_joined) {
    if (rendezvous_ == nullptr) leave_failure_notice(id_, rank_, status, message.c_str());
    bootstrap::unlink_segment(segment_name(id_));
  }
  if (rendezvous_ != nullptr) rendezvous_->publish_failure(status, message.c_str());
  static_cast<void>(fail(status, "%s", message.c_str()));
}

// Fails if a rank failed that does not share the segment yet.
ncast_status SharedWorld::check_others() const {
  return rendezvous_ == nullptr ? check_failure_notice(id_) : rendezvous_->check_failure();
}

ncast_status SharedWorld::create_or_open(const WorldOptions& options) {
  const std::string name = segment_name(id_);
  // If another rank published the name first, it may have been removed again before this rank opens it, so try again.
  for (;;) {
    bool found = false;
    if (ncast_status status = memory_.open(name, &found)) return status;
    if (found) break;
    bool taken = false;
    if (ncast_status status = create(name, options, &taken)) return status;
    if (!taken) break;
  }
  auto* control = reinterpret_cast<ControlBlock*>(memory_.data());
  if (memory_.bytes() < sizeof(ControlBlock) || control->owners.magic != bootstrap::segment_magic ||
      control->version != ControlBlock::current_version) {
    return fail(NCAST_MISMATCH, "rank %d uses another version of the library than other ranks", rank_);
  }
  use(control);
  return NCAST_OK;
}

ncast_status SharedWorld::create(const std::string& name, const WorldOptions& options, bool* taken) {
  const SegmentLayout layout = this->layout(options.shape);
  if (ncast_status status = memory_.create(layout.total_bytes())) return status;
  if (ncast_status status = memory_.allocate(0, layout.control_bytes())) return status;
  auto* control = reinterpret_cast<ControlBlock*>(memory_.data());
  control->version = ControlBlock::current_version;
  control->ranks = layout.ranks;
  // Register the creator before publishing, because a sweep removes segments without a living owner.
  bootstrap::SegmentOwners::Owner& owner = control->owners.owner[options.rank];
  owner.process = bootstrap::current_process();
  owner.state.store(bootstrap::SegmentOwners::joined, std::memory_order_release);
  control->owners.magic = bootstrap::segment_magic;
  const ncast_status status = memory_.publish(name, taken);
  created_ = status == NCAST_OK && !*taken;
  return status;
}

ncast_status SharedWorld::enter(const WorldOptions& options) {
  bootstrap::ProcessIdentity self;
  if (ncast_status status = bootstrap::find_current_process(&self)) return status;
  if (control_->ranks != static_cast<uint64_t>(local_ranks())) {
    return fail(NCAST_MISMATCH, "rank %d expects %d ranks, other ranks expect %" PRIu64, rank_, local_ranks(),
                control_->ranks);
  }
  bootstrap::SegmentOwners::Owner& owner = control_->owners.owner[rank_];
  uint64_t state = bootstrap::SegmentOwners::absent;
  if (owner.state.compare_exchange_strong(state, bootstrap::SegmentOwners::claimed)) {
    owner.process = self;
    owner.state.store(bootstrap::SegmentOwners::joined, std::memory_order_release);
  } else if (!created_) {
    return fail(NCAST_MISMATCH, "two callers joined as rank %d (one is pid %" PRId64 ")", rank_, self.pid);
  }
  for (int peer = 0; peer < ranks_; ++peer) {
    const bootstrap::SegmentOwners::Owner& other = control_->owners.owner[peer];
    if (other.state.load(std::memory_order_acquire) < bootstrap::SegmentOwners::joined) continue;
    if (other.process.pid_namespace != self.pid_namespace) {
      return fail(NCAST_UNSUPPORTED, "ranks %d and %d are in different pid namespaces (containers)", rank_, peer);
    }
  }
  control_->member[rank_].settings = options.settings;
  joined_ = true;
  // The last rank removes the name before any rank can return from join().
  if ((control_->joined.fetch_or(rank_bit(rank_), std::memory_order_seq_cst) | rank_bit(rank_)) == local_) {
    bootstrap::unlink_segment(segment_name(id_));
    control_->complete.store(1, std::memory_order_seq_cst);
  }
  wake_peers();
  return NCAST_OK;
}

template <typename Done>
ncast_status SharedWorld::wait_for_all(Done done, const std::atomic<RankSet>& arrived, const Deadline& deadline) {
  auto last_inspection = bootstrap::Clock::now();
  for (;;) {
    const uint32_t seen = bell().epoch();
    // Check this first: joining has succeeded even if a peer has failed or died since.
    if (done()) return NCAST_OK;
    if (ncast_status status = check_failure()) return status;
    const auto now = bootstrap::Clock::now();
    if (now - last_inspection >= inspection_interval) {
      last_inspection = now;
      if (bootstrap::is_interrupted()) return bootstrap::interrupted();
      if (ncast_status status = check_others()) return done() ? NCAST_OK : status;
      const RankSet gone = dead() | left();
      // A failure that a rank published before it ended is visible by now. It is more informative than the fact of its
      // end.
      if (gone != 0) {
        if (done()) return NCAST_OK;
        if (ncast_status status = check_failure()) return status;
        const int peer = std::countr_zero(gone);
        return fail(NCAST_REMOTE_ERROR, "%s died before all %d ranks had joined", name_of(peer).c_str(), ranks_);
      }
      if (deadline.limit.passed(deadline.start)) {
        return fail(NCAST_TIMEOUT, "rank %d waited %g s for ranks that have not joined: %s (of %d)", rank_,
                    deadline.limit.seconds, missing_ranks(arrived).c_str(), ranks_);
      }
    }
    bell().wait(seen, inspection_interval);
  }
}

std::string SharedWorld::missing_ranks(RankSet arrived) const {
  std::vector<int> missing;
  for (int peer = 0; peer < ranks_; ++peer)
    if ((local_ & ~arrived & rank_bit(peer)) != 0) missing.push_back(peer);
  return bootstrap::rank_list(missing);
}

ncast_status SharedWorld::allocate_rings(const WorldOptions& options) {
  const SegmentLayout layout = this->layout(options.shape);
  if (memory_.bytes() < layout.total_bytes()) {
    return fail(NCAST_SYSTEM_ERROR, "shared memory %s is damaged: it has %zu bytes instead of %" PRIu64,
                segment_name(id_).c_str(), memory_.bytes(), layout.total_bytes());
  }
  end_bytes_ = layout.total_bytes();
  if (local_ranks() == 1) return NCAST_OK;
  return memory_.allocate(layout.rank_offset(place_of(rank_)), layout.rank_bytes());
}

void* SharedWorld::ring(int from, int to, const RingShape& shape) const {
  return memory_.data() + layout(shape).ring_offset(place_of(from), place_of(to));
}

}  // namespace narrowcast::channel
