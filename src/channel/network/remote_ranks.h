// The ranks of a communicator of GPUs that are on other hosts, and the connections to them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/rendezvous.h"
#include "bootstrap/world_id.h"
#include "channel/network/forwarder.h"
#include "channel/network/introduction.h"
#include "channel/network/stream.h"

namespace narrowcast::channel {

class RemoteRanks {
 public:
  // Every rank calls this: finds out where the ranks are. Errors: those of introduce().
  ncast_status find(bootstrap::Rendezvous& rendezvous);

  // Whether any ranks are on different hosts: the same on all ranks.
  bool span_hosts() const { return spans_hosts_; }
  // Bit mask of the ranks on other hosts than this rank.
  uint32_t mask() const { return mask_; }
  // "rank 2", with its process and host if ranks are on several hosts.
  std::string name_of(int rank) const;

  // memory_of: the memory of this rank and of the mirror of a peer. failed: called by any thread when a connection has
  // ended, with the reason.
  using MemoryOf = std::function<Forwarder::Memory(int peer)>;
  using Failed = std::function<void(ncast_status status, const char* message)>;
  // Every rank calls this if they span hosts. call_limit: the time limit of calls, within which a lost host is found.
  // Errors: those of agree_on_carrier() and connect_streams().
  ncast_status connect(bootstrap::Rendezvous& rendezvous, const bootstrap::WorldId& secret, bootstrap::Limit limit,
                       bootstrap::Limit call_limit, const MemoryOf& memory_of, const Failed& failed);
  bool is_connected() const { return !forwarders_.empty(); }
  // Ends the connections, after what this rank's kernels have written. Waits a second at most for peers that do not
  // receive it.
  void disconnect();

  // Bytes of the payloads sent to other hosts.
  uint64_t payload_bytes() const;

 private:
  ncast_status agree_on_flows(bootstrap::Rendezvous& rendezvous, uint32_t* flows) const;
  void add_flow(bootstrap::Rendezvous& rendezvous, FlowShare share, Streams streams, const MemoryOf& memory_of,
                const Failed& failed);

  Introductions ranks_;
  bool spans_hosts_ = false;
  uint32_t mask_ = 0;
  std::vector<std::unique_ptr<Forwarder>> forwarders_;
};

}  // namespace narrowcast::channel
