// Connects the ranks of a communicator that are on different hosts.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/rendezvous.h"
#include "bootstrap/tcp_connection.h"
#include "bootstrap/world_id.h"
#include "channel/host/control_block.h"

namespace narrowcast::channel {

using Connections = std::vector<std::unique_ptr<bootstrap::Connection>>;  // by rank

// Every rank calls this, and gets a connection to each rank in `others`, whose other end has proved that it knows the
// secret. The secret itself is not sent. Others may connect to the port meanwhile: they are ignored. names: of all
// ranks, for messages. Errors, which all ranks get: TIMEOUT (names a rank without a connection), SYSTEM_ERROR, and
// those of the rendezvous.
ncast_status connect_ranks(bootstrap::Rendezvous& rendezvous, const bootstrap::WorldId& secret, bootstrap::Limit limit,
                           RankSet others, std::span<const std::string> names, Connections* connections);

// Makes the connection end if the peer's host is lost: before a call that waits for it ends at the time limit of calls,
// if that is not too short for probes.
void find_loss_within(int socket, bootstrap::Limit call_limit);

}  // namespace narrowcast::channel
