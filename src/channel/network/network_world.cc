#include "channel/network/network_world.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "bootstrap/outcome.h"
#include "channel/network/connect_streams.h"
#include "digest/sha256.h"
#include "status/error.h"

namespace narrowcast::channel {
namespace {

// The id of the segment of a host: hosts that are faked on one machine have one /dev/shm.
bootstrap::WorldId id_of_host(const bootstrap::WorldId& secret, int host) {
  const std::string text(reinterpret_cast<const char*>(secret.data()), sizeof secret);
  const digest::Sha256 hash = digest::sha256("narrowcast host of a world", text + std::to_string(host));
  bootstrap::WorldId id;
  static_assert(sizeof id <= sizeof hash);
  std::memcpy(id.data(), hash.data(), sizeof id);
  return id;
}

}  // namespace

ncast_status NetworkWorld::join(bootstrap::Rendezvous& rendezvous, const bootstrap::WorldId& secret,
                                const WorldOptions& options, std::unique_ptr<World>* result) {
  std::unique_ptr<NetworkWorld> world(new NetworkWorld(options.rank, options.ranks));
  if (ncast_status status = world->connect(rendezvous, secret, options)) return status;
  *result = std::move(world);
  return NCAST_OK;
}

ncast_status NetworkWorld::connect(bootstrap::Rendezvous& rendezvous, const bootstrap::WorldId& secret,
                                   const WorldOptions& options) {
  if (ncast_status status = introduce(rendezvous, options)) return status;
  RankSet local = 0;
  for (int peer = 0; peer < ranks_; ++peer)
    if (host_of(peer) == host_of(rank_)) local |= rank_bit(peer);
  bootstrap::sweep_stale_segments();
  if (ncast_status status = join_segment(id_of_host(secret, host_of(rank_)), local, &rendezvous, options))
    return status;
  StreamOptions stream_options{{}, options.limit, options.call_limit};
  if (hosts() > 1)
    if (ncast_status status = agree_on_carrier(rendezvous, &stream_options.carrier)) return status;
  Streams streams;
  if (ncast_status status =
          connect_streams(rendezvous, secret, stream_options, all_ranks() & ~local, introductions_, &streams))
    return status;
  // Without this a rank could end while others still wait for the rendezvous, whose hub may be in its process.
  return bootstrap::agree_on_outcome(rendezvous, make_links(std::move(streams), options));
}

ncast_status NetworkWorld::introduce(bootstrap::Rendezvous& rendezvous, const WorldOptions& options) {
  std::vector<bootstrap::SharedSettings> settings(static_cast<size_t>(ranks_));
  if (ncast_status status = rendezvous.all_gather(&options.settings, sizeof options.settings, settings.data()))
    return status;
  if (ncast_status status = bootstrap::check_same_settings(settings)) return status;
  if (ncast_status status = channel::introduce(rendezvous, options.host, &introductions_)) return status;
  set_hosts(introductions_.hosts);
  return NCAST_OK;
}

ncast_status NetworkWorld::make_links(Streams streams, const WorldOptions& options) {
  // Zeroed, and on whole cache lines. Only the pages that are used cost memory.
  const uint64_t ring_bytes = options.shape.ring_bytes();
  rings_.reset(std::calloc(1, 2 * ring_bytes * streams.size() + cache_line_bytes));
  if (rings_ == nullptr) return fail(NCAST_SYSTEM_ERROR, "out of memory: the rings of %d ranks", ranks_);
  const auto beyond = reinterpret_cast<uintptr_t>(rings_.get()) % cache_line_bytes;
  auto* next = static_cast<std::byte*>(rings_.get()) + (beyond == 0 ? 0 : cache_line_bytes - beyond);
  links_.resize(streams.size());
  for (int peer = 0; peer < ranks_; ++peer) {
    void *outgoing = nullptr, *incoming = nullptr;
    if (!is_local(peer)) {
      outgoing = next;
      incoming = next + ring_bytes;
      next += 2 * ring_bytes;
      remote_->owners.owner[peer].state = bootstrap::SegmentOwners::joined;
      std::unique_ptr<Link>& link = links_[static_cast<size_t>(peer)];
      link = std::make_unique<Link>(rank_, peer, std::move(streams[static_cast<size_t>(peer)]),
                                    Link::Memory{*control_, *remote_, outgoing, incoming, options.shape});
      use_link(peer, remote_.get(), link->bell());
    } else if (peer != rank_) {
      outgoing = ring(rank_, peer, options.shape);
      incoming = ring(peer, rank_, options.shape);
    }
    add_rings(outgoing, incoming, options.shape);
  }
  for (const std::unique_ptr<Link>& link : links_) {
    if (link == nullptr) continue;
    if (ncast_status status = link->start()) return status;
  }
  return NCAST_OK;
}

NetworkWorld::~NetworkWorld() {
  SharedWorld::leave();  // uses the bells of the links
  for (const std::unique_ptr<Link>& link : links_)
    if (link != nullptr) link->leave();
}

ncast_status NetworkWorld::add_region(size_t bytes, bootstrap::SharedRange* region) {
  if (hosts() == 1) return SharedWorld::add_region(bytes, region);
  return fail(NCAST_UNSUPPORTED, "ranks on several hosts have no memory in common");
}

// NULL for a rank of this host, and while ranks join.
const Link* NetworkWorld::link_to(int peer) const {
  return links_.empty() ? nullptr : links_[static_cast<size_t>(peer)].get();
}

RankSet NetworkWorld::dead() const {
  RankSet set = 0;
  for (int peer = 0; peer < ranks_; ++peer)
    if (const Link* const link = link_to(peer); link != nullptr && link->has_ended()) set |= rank_bit(peer);
  return SharedWorld::dead() | (set & ~left());
}

ncast_status NetworkWorld::fail_of_dead(int peer) const {
  if (const Link* const link = link_to(peer)) return link->fail_of_end(name_of(peer));
  return fail_of_connection(name_of(peer), 0, "");
}

}  // namespace narrowcast::channel
