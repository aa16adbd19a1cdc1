#include "channel/network/connect_streams.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bootstrap/interrupt.h"
#include "bootstrap/outcome.h"
#include "bootstrap/shared_settings.h"
#include "channel/network/idle_pause.h"
#include "channel/network/meeting.h"
#include "channel/network/plugin_stream.h"
#include "channel/network/tcp_stream.h"
#include "channel/network/ucx_stream.h"
#include "channel/network/ucx_worker.h"
#include "status/error.h"

namespace narrowcast::channel {
namespace {

ncast_status check_same(bootstrap::Rendezvous& rendezvous, std::string_view name, std::string_view value) {
  bootstrap::SharedSettings own;
  if (ncast_status status = own.add(name, value.substr(0, 100))) return status;
  std::vector<bootstrap::SharedSettings> all(static_cast<size_t>(rendezvous.ranks()));
  if (ncast_status status = rendezvous.all_gather(&own, sizeof own, all.data())) return status;
  return bootstrap::check_same_settings(all);
}

// Where hosts have as many devices, those of the same number are connected: they may be on a network of their own.
uint32_t device_between(const Introductions& ranks, int a, int b, uint32_t flow) {
  const auto index_on_host = [&](int rank) {
    const auto own = ranks.hosts.begin() + rank;
    return static_cast<uint32_t>(std::count(ranks.hosts.begin(), own, *own));
  };
  return index_on_host(a) + index_on_host(b) + flow;
}

struct MessagePeer {
  int rank;
  std::unique_ptr<MessageStream> stream;
};

ncast_status connect_message_streams(bootstrap::Rendezvous& rendezvous, const bootstrap::WorldId& secret,
                                     const StreamOptions& options, const Introductions& ranks,
                                     std::vector<MessagePeer>& peers) {
  const auto name_of = [&](const MessagePeer& peer) { return ranks.names[static_cast<size_t>(peer.rank)].c_str(); };
  const auto check = [&](const MessagePeer& peer, ncast_status status) {
    if (status == NCAST_OK) return status;
    const std::string message = ncast_last_error();
    return fail(status, "the connection to %s failed: %s", name_of(peer), message.c_str());
  };
  for (const MessagePeer& peer : peers)
    if (ncast_status status = check(peer, peer.stream->begin(secret, rendezvous.rank(), peer.rank))) return status;
  const bootstrap::Clock::time_point start = bootstrap::Clock::now();
  for (IdlePause pause;; pause.wait()) {
    const MessagePeer* missing = nullptr;
    for (const MessagePeer& peer : peers) {
      bool connected = false;
      if (ncast_status status = check(peer, peer.stream->connect(&connected))) return status;
      if (!connected) missing = &peer;
    }
    if (missing == nullptr) return NCAST_OK;
    if (bootstrap::is_interrupted()) return bootstrap::interrupted();
    if (ncast_status status = rendezvous.check_failure()) return status;
    if (options.limit.passed(start))
      return fail(NCAST_TIMEOUT, "no connection to %s by %s within %g s", name_of(*missing),
                  options.carrier.name().c_str(), options.limit.seconds);
  }
}

}  // namespace

ncast_status agree_on_carrier(bootstrap::Rendezvous& rendezvous, Carrier* carrier) {
  *carrier = {};
  const std::string wanted = wanted_network();
  if (ncast_status status = check_same(rendezvous, network_variable, wanted)) return status;
  Carrier own;
  ncast_status status = find_carrier(wanted, &own);
  if ((status = bootstrap::agree_on_outcome(rendezvous, status))) return status;
  if (wanted == "tcp") return NCAST_OK;
  status = check_same(rendezvous, "the network", own.name());
  if (status == NCAST_MISMATCH && wanted == "auto") return NCAST_OK;
  if (status == NCAST_OK) *carrier = own;
  return status;
}

ncast_status connect_streams(bootstrap::Rendezvous& rendezvous, const bootstrap::WorldId& secret,
                             const StreamOptions& options, RankSet others, const Introductions& ranks,
                             Streams* streams) {
  Connections connections;
  if (ncast_status status = connect_ranks(rendezvous, secret, options.limit, others, ranks.names, &connections))
    return status;
  streams->clear();
  streams->resize(connections.size());
  const Carrier& carrier = options.carrier;
  ncast_status status = NCAST_OK;
  std::shared_ptr<UcxWorker> worker;
  if (carrier.ucx != nullptr) status = UcxWorker::create(*carrier.ucx, &worker);
  std::vector<MessagePeer> peers;
  for (int rank = 0; rank < rendezvous.ranks() && status == NCAST_OK; ++rank) {
    std::unique_ptr<bootstrap::Connection>& connection = connections[static_cast<size_t>(rank)];
    if (connection == nullptr) continue;
    find_loss_within(connection->socket.get(), options.call_limit);
    if (carrier.ucx != nullptr) {
      peers.push_back({rank, std::make_unique<UcxStream>(worker, std::move(connection))});
    } else if (carrier.plugin != nullptr) {
      const uint32_t device = device_between(ranks, rendezvous.rank(), rank, options.flow);
      peers.push_back({rank, std::make_unique<PluginStream>(*carrier.plugin, device, std::move(connection))});
    } else {
      status = TcpStream::make(std::move(connection), &(*streams)[static_cast<size_t>(rank)]);
    }
  }
  if (status == NCAST_OK) status = connect_message_streams(rendezvous, secret, options, ranks, peers);
  if (status != NCAST_OK) {
    const std::string message = ncast_last_error();
    rendezvous.publish_failure(status, message.c_str());  // others may wait for this rank
    return fail(status, "%s", message.c_str());
  }
  for (MessagePeer& peer : peers) (*streams)[static_cast<size_t>(peer.rank)] = std::move(peer.stream);
  return NCAST_OK;
}

}  // namespace narrowcast::channel
