// Connects the ranks that are on different hosts.
#pragma once

#include <span>
#include <string>

#include "bootstrap/deadline.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/world_id.h"
#include "channel/host/control_block.h"
#include "channel/network/stream.h"

namespace narrowcast::channel {

// Every rank calls this, and gets a stream to each rank in `others`. limit: to connect. call_limit: of calls: the loss
// of a host is found before it, if it is not too short for probes. Errors: those of connect_ranks(), which all ranks
// get; SYSTEM_ERROR.
ncast_status connect_streams(bootstrap::Rendezvous& rendezvous, const bootstrap::WorldId& secret,
                             bootstrap::Limit limit, bootstrap::Limit call_limit, RankSet others,
                             std::span<const std::string> names, Streams* streams);

}  // namespace narrowcast::channel
