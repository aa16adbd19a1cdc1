#include "channel/network/remote_ranks.h"

#include <algorithm>
#include <bit>
#include <thread>

#include "bootstrap/host.h"
#include "channel/network/connect_streams.h"
#include "status/error.h"

namespace narrowcast::channel {
namespace {

// Between two ranks.
constexpr uint32_t most_flows = 4;

}  // namespace

ncast_status RemoteRanks::find(bootstrap::Rendezvous& rendezvous) {
  if (ncast_status status = introduce(rendezvous, bootstrap::own_machine(), &ranks_)) return status;
  const std::vector<uint64_t>& hosts = ranks_.hosts;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    if (hosts[rank] != hosts[0]) spans_hosts_ = true;
    if (hosts[rank] != hosts[static_cast<size_t>(rendezvous.rank())]) mask_ |= 1u << rank;
  }
  return NCAST_OK;
}

std::string RemoteRanks::name_of(int rank) const {
  return spans_hosts_ ? ranks_.names[static_cast<size_t>(rank)] : "rank " + std::to_string(rank);
}

ncast_status RemoteRanks::connect(bootstrap::Rendezvous& rendezvous, const bootstrap::WorldId& secret,
                                  bootstrap::Limit limit, bootstrap::Limit call_limit, const MemoryOf& memory_of,
                                  const Failed& failed) {
  uint32_t flows = 0;
  if (ncast_status status = agree_on_flows(rendezvous, &flows)) return status;
  StreamOptions options{{}, limit, call_limit};
  if (ncast_status status = agree_on_carrier(rendezvous, &options.carrier)) return status;
  for (uint32_t flow = 0; flow < flows; ++flow) {
    options.flow = flow;
    Streams streams;
    if (ncast_status status = connect_streams(rendezvous, secret, options, mask_, ranks_, &streams)) return status;
    add_flow(rendezvous, {flow, flows}, std::move(streams), memory_of, failed);
  }
  for (const std::unique_ptr<Forwarder>& forwarder : forwarders_)
    if (ncast_status status = forwarder->start()) return status;
  return NCAST_OK;
}

ncast_status RemoteRanks::agree_on_flows(bootstrap::Rendezvous& rendezvous, uint32_t* flows) const {
  // A flow keeps two threads busy. Half of the processors are left to the program.
  const auto local = rendezvous.ranks() - std::popcount(mask_);
  const auto threads = 2 * static_cast<uint32_t>(local * std::popcount(mask_));
  const uint32_t own = std::clamp(std::thread::hardware_concurrency() / (2 * threads), 1u, most_flows);
  std::vector<uint32_t> all(static_cast<size_t>(rendezvous.ranks()));
  if (ncast_status status = rendezvous.all_gather(&own, sizeof own, all.data())) return status;
  *flows = std::ranges::min(all);
  return NCAST_OK;
}

void RemoteRanks::add_flow(bootstrap::Rendezvous& rendezvous, FlowShare share, Streams streams,
                           const MemoryOf& memory_of, const Failed& failed) {
  for (int peer = 0; peer < rendezvous.ranks(); ++peer) {
    if ((mask_ >> peer & 1) == 0) continue;
    const auto report = [failed, name = name_of(peer)](int error, const std::string& text) {
      const ncast_status status = fail_of_connection(name, error, text);
      const std::string message = ncast_last_error();
      failed(status, message.c_str());
    };
    Forwarder::Memory memory = memory_of(peer);
    memory.share = share;
    forwarders_.push_back(std::make_unique<Forwarder>(rendezvous.rank(), peer, rendezvous.ranks(),
                                                      std::move(streams[static_cast<size_t>(peer)]), memory, report));
  }
}

void RemoteRanks::disconnect() {
  for (const std::unique_ptr<Forwarder>& forwarder : forwarders_) forwarder->leave();
  forwarders_.clear();
}

uint64_t RemoteRanks::payload_bytes() const {
  uint64_t bytes = 0;
  for (const std::unique_ptr<Forwarder>& forwarder : forwarders_) bytes += forwarder->payload_bytes();
  return bytes;
}

}  // namespace narrowcast::channel
