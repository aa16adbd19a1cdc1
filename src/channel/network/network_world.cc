#include "channel/network/network_world.h"

#include <cerrno>

#include "bootstrap/outcome.h"
#include "bootstrap/tcp_rendezvous.h"
#include "channel/network/meeting.h"
#include "status/error.h"
#include "status/system_error.h"

namespace narrowcast::channel {
namespace {

// What ranks tell each other before anything else. Copied as bytes.
struct Introduction {
  bootstrap::SharedSettings settings;
  uint64_t host;
};

}  // namespace

ncast_status NetworkWorld::join(const bootstrap::TcpAddress& hub, const bootstrap::WorldId& secret,
                                const WorldOptions& options, ncast_status own, std::unique_ptr<World>* result) {
  std::unique_ptr<NetworkWorld> world(new NetworkWorld(options.rank, options.ranks));
  if (ncast_status status = world->meet(hub, secret, options, own)) return status;
  *result = std::move(world);
  return NCAST_OK;
}

ncast_status NetworkWorld::meet(const bootstrap::TcpAddress& hub, const bootstrap::WorldId& secret,
                                const WorldOptions& options, ncast_status own) {
  const bootstrap::Outcome outcome = bootstrap::Outcome::of(own);
  std::unique_ptr<bootstrap::Rendezvous> rendezvous;
  if (ncast_status status =
          bootstrap::TcpRendezvous::join(hub, secret, options.rank, options.ranks, options.limit, &rendezvous))
    return status;
  if (own != NCAST_OK) {
    rendezvous->publish_failure(own, outcome.message);
    return fail(own, "%s", outcome.message);
  }
  const Introduction introduction{options.settings, options.host};
  std::vector<Introduction> all(static_cast<size_t>(ranks_));
  if (ncast_status status = rendezvous->all_gather(&introduction, sizeof introduction, all.data())) return status;
  std::vector<bootstrap::SharedSettings> settings;
  std::vector<uint64_t> hosts;
  for (const Introduction& one : all) {
    settings.push_back(one.settings);
    hosts.push_back(one.host);
  }
  if (ncast_status status = bootstrap::check_same_settings(settings)) return status;
  set_hosts(hosts);
  std::vector<Peer> peers;
  if (ncast_status status = connect_ranks(*rendezvous, secret, options.limit, &peers)) return status;

  // Zeroed, and on whole cache lines. Only the pages that are used cost memory.
  const uint64_t ring_bytes = options.shape.ring_bytes();
  rings_.reset(std::calloc(1, 2 * ring_bytes * peers.size() + cache_line_bytes));
  if (rings_ == nullptr) return fail(NCAST_SYSTEM_ERROR, "out of memory: the rings of %d ranks", ranks_);
  const auto beyond = reinterpret_cast<uintptr_t>(rings_.get()) % cache_line_bytes;
  auto* next = static_cast<std::byte*>(rings_.get()) + (beyond == 0 ? 0 : cache_line_bytes - beyond);
  use(own_control_.get());
  for (int number = 0; number < ranks_; ++number) {
    Peer& peer = peers[static_cast<size_t>(number)];
    own_control_->owners.owner[number].state = bootstrap::SegmentOwners::joined;
    names_.push_back(peer.name);
    links_.emplace_back();
    void* const outgoing = next;
    void* const incoming = next + ring_bytes;
    next += 2 * ring_bytes;
    if (number != rank_) {
      links_.back() = std::make_unique<Link>(rank_, number, std::move(peer.connection),
                                             Link::Memory{*own_control_, outgoing, incoming, options.shape});
      set_bell(number, links_.back()->bell());
    }
    add_rings(outgoing, incoming, options.shape);
  }
  ncast_status started = NCAST_OK;
  for (const std::unique_ptr<Link>& link : links_)
    if (link != nullptr && started == NCAST_OK) started = link->start();
  // Without this a rank could end while others still wait for the rendezvous, whose hub may be in its process.
  return bootstrap::agree_on_outcome(*rendezvous, started);
}

NetworkWorld::~NetworkWorld() {
  for (const std::unique_ptr<Link>& link : links_)
    if (link != nullptr) link->leave();
}

ncast_status NetworkWorld::add_region(size_t, bootstrap::SharedRange*) {
  return fail(NCAST_UNSUPPORTED, "ranks on several hosts have no memory in common");
}

bool NetworkWorld::has_ended(int peer, int* error) const {
  const std::unique_ptr<Link>& link = links_[static_cast<size_t>(peer)];
  return link != nullptr && link->has_ended(error);
}

RankSet NetworkWorld::dead() const {
  RankSet set = 0;
  for (int peer = 0; peer < ranks_; ++peer)
    if (has_ended(peer)) set |= rank_bit(peer);
  return set & ~left();
}

ncast_status NetworkWorld::fail_of_dead(int peer) const {
  int error = 0;
  has_ended(peer, &error);
  const std::string name = name_of(peer);
  if (error == 0 || error == ECONNRESET || error == EPIPE) return fail(NCAST_REMOTE_ERROR, "%s died", name.c_str());
  return fail(NCAST_REMOTE_ERROR, "the connection to %s broke: %s", name.c_str(),
              error == EBADMSG ? "what it sent is not valid" : system_error_text(error).c_str());
}

}  // namespace narrowcast::channel
