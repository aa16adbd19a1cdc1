// Joining a world. The first rank creates the segment and publishes it under a name that is derived from the unique id.
// All users can list /dev/shm, so the name does not reveal the id. The other ranks open the segment. The last rank to
// join removes the name, so no segment remains in /dev/shm if the ranks are killed afterwards.
#include <cinttypes>
#include <string_view>

#include "bootstrap/interrupt.h"
#include "channel/host/world.h"
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

ncast_status World::join(const bootstrap::WorldId& id, const WorldOptions& options, std::unique_ptr<World>* result) {
  bootstrap::sweep_stale_segments();
  const std::string name = segment_name(id);
  std::unique_ptr<World> world(new World(options.rank, options.ranks));
  if (ncast_status status = world->create_or_open(name, options)) return status;
  ncast_status status = world->enter(name, options);
  if (status == NCAST_OK) status = world->wait_for_all(options.limit);
  if (status != NCAST_OK) {
    // Only the rank whose failure is published removes the name. A later removal could hit the segment of a second
    // attempt with the same id.
    if (world->publish_failure(status, ncast_last_error())) bootstrap::unlink_segment(name);
    return status;
  }
  world->make_ring_ends(options);
  *result = std::move(world);
  return NCAST_OK;
}

ncast_status World::create_or_open(const std::string& name, const WorldOptions& options) {
  // If another rank published the name first, it may have been removed again before this rank opens it, so try again.
  for (;;) {
    bool found = false;
    if (ncast_status status = memory_.open(name, &found)) return status;
    if (found) break;
    bool taken = false;
    if (ncast_status status = create(name, options, &taken)) return status;
    if (!taken) break;
  }
  control_ = reinterpret_cast<ControlBlock*>(memory_.data());
  if (memory_.bytes() < sizeof(ControlBlock) || control_->owners.magic != bootstrap::segment_magic ||
      control_->version != ControlBlock::current_version) {
    return fail(NCAST_MISMATCH, "the ranks use different versions of the library");
  }
  return NCAST_OK;
}

ncast_status World::create(const std::string& name, const WorldOptions& options, bool* taken) {
  const SegmentLayout layout{static_cast<uint64_t>(options.ranks), options.shape};
  if (ncast_status status = memory_.create(layout.total_bytes())) return status;
  if (ncast_status status = memory_.allocate(0, layout.control_bytes())) return status;
  auto* control = reinterpret_cast<ControlBlock*>(memory_.data());
  control->version = ControlBlock::current_version;
  control->ranks = layout.ranks;
  control->shape = options.shape;
  control->costs = options.costs;
  // Register the creator before publishing, because a sweep removes segments without a living owner.
  bootstrap::SegmentOwners::Owner& owner = control->owners.owner[options.rank];
  owner.process = bootstrap::current_process();
  owner.state.store(bootstrap::SegmentOwners::joined, std::memory_order_release);
  control->owners.magic = bootstrap::segment_magic;
  const ncast_status status = memory_.publish(name, taken);
  created_ = status == NCAST_OK && !*taken;
  return status;
}

ncast_status World::enter(const std::string& name, const WorldOptions& options) {
  const bootstrap::ProcessIdentity self = bootstrap::current_process();
  if (self.start_time == 0)
    return fail(NCAST_UNSUPPORTED, "cannot read /proc/self/stat, which is needed to identify processes");
  if (control_->ranks != static_cast<uint64_t>(ranks_)) {
    return fail(NCAST_MISMATCH, "rank %d expects %d ranks, other ranks expect %" PRIu64, rank_, ranks_,
                control_->ranks);
  }
  if (control_->shape.slots != options.shape.slots ||
      control_->shape.payload_capacity_bytes != options.shape.payload_capacity_bytes) {
    return fail(NCAST_MISMATCH, "scratch_bytes differs on rank %d", rank_);
  }
  if (control_->costs != options.costs) return fail(NCAST_MISMATCH, "the cost model differs on rank %d", rank_);
  const SegmentLayout layout{static_cast<uint64_t>(ranks_), options.shape};
  if (memory_.bytes() < layout.total_bytes()) {
    return fail(NCAST_SYSTEM_ERROR, "shared memory %s is damaged: it has %zu bytes instead of %" PRIu64, name.c_str(),
                memory_.bytes(), layout.total_bytes());
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
  if (ranks_ > 1) {
    const auto rank = static_cast<uint64_t>(rank_);
    if (ncast_status status = memory_.allocate(layout.rank_offset(rank), layout.rank_bytes())) return status;
  }
  joined_ = true;
  // The last rank removes the name before any rank can return from join().
  if (control_->joined_ranks.fetch_add(1, std::memory_order_seq_cst) + 1 == control_->ranks) {
    bootstrap::unlink_segment(name);
    control_->complete.store(1, std::memory_order_seq_cst);
  }
  wake_peers();
  return NCAST_OK;
}

ncast_status World::wait_for_all(bootstrap::Limit limit) {
  const auto start = bootstrap::Clock::now();
  auto last_inspection = start;
  for (;;) {
    const uint32_t seen = bell().epoch();
    // Check this first: joining has succeeded even if a peer has failed or died since.
    if (control_->complete.load(std::memory_order_seq_cst) != 0) return NCAST_OK;
    if (ncast_status status = check_failure()) return status;
    const auto now = bootstrap::Clock::now();
    if (now - last_inspection >= inspection_interval) {
      last_inspection = now;
      if (bootstrap::is_interrupted()) return bootstrap::interrupted();
      const RankSet missing = dead() | left();
      // A failure that a rank published before it ended is visible by now. It is more informative than the fact of its
      // end.
      if (missing != 0) {
        if (control_->complete.load(std::memory_order_seq_cst) != 0) return NCAST_OK;
        if (ncast_status status = check_failure()) return status;
      }
      for (int peer = 0; peer < ranks_; ++peer) {
        if ((missing & rank_bit(peer)) == 0) continue;
        return fail(NCAST_REMOTE_ERROR, "rank %d (pid %" PRId64 ") died before all %d ranks had joined", peer,
                    pid_of(peer), ranks_);
      }
      if (limit.passed(start)) {
        return fail(NCAST_TIMEOUT, "rank %d waited %g s for ranks that have not joined: %s (of %d)", rank_,
                    limit.seconds, missing_ranks().c_str(), ranks_);
      }
    }
    bell().wait(seen, inspection_interval);
  }
}

std::string World::missing_ranks() const {
  std::string list;
  for (int peer = 0; peer < ranks_; ++peer) {
    if (control_->owners.owner[peer].state.load(std::memory_order_acquire) >= bootstrap::SegmentOwners::joined)
      continue;
    list += (list.empty() ? "" : ", ") + std::to_string(peer);
  }
  return list;
}

void World::make_ring_ends(const WorldOptions& options) {
  const SegmentLayout layout{static_cast<uint64_t>(ranks_), options.shape};
  const auto me = static_cast<uint64_t>(rank_);
  end_bytes_ = layout.total_bytes();
  for (uint64_t peer = 0; peer < layout.ranks; ++peer) {
    // A rank has no ring to itself. Its entry is never used.
    std::byte* base = memory_.data();
    Doorbell* bell = &control_->member[peer].bell;
    senders_.emplace_back(peer == me ? nullptr : base + layout.ring_offset(me, peer), options.shape, bell);
    receivers_.emplace_back(peer == me ? nullptr : base + layout.ring_offset(peer, me), options.shape, bell);
  }
}

}  // namespace narrowcast::channel
