// Connects the ranks of a communicator with each other.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bootstrap/rendezvous.h"
#include "bootstrap/tcp_connection.h"
#include "bootstrap/world_id.h"

namespace narrowcast::channel {

// A rank of a world of several hosts, as another rank sees it.
struct Peer {
  std::unique_ptr<bootstrap::Connection> connection;  // NULL for this rank
  std::string name;                                   // "rank 2 (pid 77 on node3)"
};

// Every rank calls this, and gets a connection to each other rank, whose other end has proved that it knows the secret.
// The secret itself is not sent. Others may connect to the port meanwhile: they are ignored. Errors, which all ranks
// get: TIMEOUT (names a rank without a connection), SYSTEM_ERROR, and those of the rendezvous.
ncast_status connect_ranks(bootstrap::Rendezvous& rendezvous, const bootstrap::WorldId& secret, bootstrap::Limit limit,
                           std::vector<Peer>* peers);

}  // namespace narrowcast::channel
