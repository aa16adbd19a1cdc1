// Connects the ranks that are on different hosts.
#pragma once

#include "bootstrap/deadline.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/world_id.h"
#include "channel/host/control_block.h"
#include "channel/network/carrier.h"
#include "channel/network/introduction.h"
#include "channel/network/stream.h"

namespace narrowcast::channel {

struct StreamOptions {
  Carrier carrier;
  bootstrap::Limit limit;       // to connect
  bootstrap::Limit call_limit;  // of calls: the loss of a host is found before it, if it is not too short for probes
  uint32_t flow = 0;            // the number of this stream of several between two ranks
};

// Every rank calls this: finds out what NARROWCAST_NET says. Errors, which all ranks get: INVALID_ARGUMENT, MISMATCH
// (ranks differ in the variable, the plugin or UCX), UNSUPPORTED (there is no plugin or UCX), and those of the
// rendezvous.
ncast_status agree_on_carrier(bootstrap::Rendezvous& rendezvous, Carrier* carrier);

// Every rank calls this, and gets a stream to each rank in `others`. Errors, which all ranks get: those of
// connect_ranks(), SYSTEM_ERROR (a plugin or UCX fails).
ncast_status connect_streams(bootstrap::Rendezvous& rendezvous, const bootstrap::WorldId& secret,
                             const StreamOptions& options, RankSet others, const Introductions& ranks,
                             Streams* streams);

}  // namespace narrowcast::channel
