#include "bootstrap/tcp_rendezvous.h"

#include "bootstrap/tcp_watcher.h"
#include "status/error.h"

namespace narrowcast::bootstrap {
namespace {

ncast_status forked_failure() {
  return fail(NCAST_UNSUPPORTED, "this process was forked from the one that joined the communicator");
}

}  // namespace

ncast_status TcpRendezvous::join(const TcpAddress& address, const WorldId& secret, int rank, int ranks, Limit limit,
                                 std::unique_ptr<Rendezvous>* result) {
  if (ranks < 1 || ranks > max_ranks || rank < 0 || rank >= ranks) {
    return fail(NCAST_INVALID_ARGUMENT, "rank %d of %d: ranks must be 1 to %d, and rank below it", rank, ranks,
                max_ranks);
  }
  auto watcher = std::make_unique<TcpWatcher>(address, rank, ranks, limit);
  if (ncast_status status = watcher->join(secret)) return status;
  result->reset(new TcpRendezvous(rank, ranks, std::move(watcher)));
  return NCAST_OK;
}

TcpRendezvous::TcpRendezvous(int rank, int ranks, std::unique_ptr<TcpWatcher> watcher)
    : Rendezvous(rank, ranks), watcher_(std::move(watcher)) {}

TcpRendezvous::~TcpRendezvous() {
  // In a forked child, leak the watcher: its destructor would join a thread that exists only in the parent, and its
  // mutex may have been locked at the time of the fork.
  [[maybe_unused]] const TcpWatcher* leaked = watcher_->forked() ? watcher_.release() : nullptr;
}

ncast_status TcpRendezvous::all_gather(const void* mine, size_t bytes, void* all) {
  if (watcher_->forked()) return forked_failure();
  if (bytes > max_round_bytes / static_cast<size_t>(ranks())) {
    return fail(NCAST_INVALID_ARGUMENT, "an all_gather of %zu bytes from each of %d ranks is larger than %zu bytes",
                bytes, ranks(), max_round_bytes);
  }
  return watcher_->exchange(mine, bytes, all);
}

ncast_status TcpRendezvous::exchange_with(int peer, const void* mine, size_t bytes, void* theirs) {
  if (watcher_->forked()) return forked_failure();
  if (peer < 0 || peer >= ranks() || peer == rank() || bytes > max_pair_bytes) {
    return fail(NCAST_INVALID_ARGUMENT, "rank %d of %d cannot exchange %zu bytes with rank %d", rank(), ranks(), bytes,
                peer);
  }
  return watcher_->exchange_with(peer, mine, bytes, theirs);
}

void TcpRendezvous::set_limit(Limit limit) {
  if (!watcher_->forked()) watcher_->set_limit(limit);
}

void TcpRendezvous::publish_failure(ncast_status status, const char* message) {
  if (!watcher_->forked()) watcher_->publish_failure(status, message);
}

ncast_status TcpRendezvous::check_failure() const {
  return watcher_->forked() ? forked_failure() : watcher_->check_failure();
}

void TcpRendezvous::on_failure(std::function<void(ncast_status, const char*)> handler) {
  if (!watcher_->forked()) watcher_->set_handler(std::move(handler));
}

}  // namespace narrowcast::bootstrap
