// Serves the requests of one set of ports: checks them, passes them to the transport in order, and reports their
// completion to the kernels.
#pragma once

#include <array>
#include <vector>

#include "channel/host/world.h"
#include "channel/port/fifo.h"
#include "channel/port/transport.h"

namespace narrowcast::channel {

// The limits that requests are checked against.
struct PortBounds {
  int rank;
  uint32_t ranks;                      // below PortRequest::peers
  uint32_t ports;                      // below PortRequest::ports
  std::vector<uint64_t> region_bytes;  // fewer than PortRequest::regions, each below PortRequest::offset_limit
  bootstrap::Limit limit;              // how long the work for a peer may make no progress
};

// Called by the proxy thread only, except for the constructor.
class PortService {
 public:
  PortService(PortBounds bounds, PortFifo& fifo, PortTransport& transport);

  // Serves a limited number of requests, without waiting. *progressed: whether there was anything to do. The errors
  // fail the communicator: INVALID_ARGUMENT (a request is out of bounds; neither it nor any later request was started),
  // TIMEOUT, or an error of the transport.
  ncast_status serve(bool* progressed);

  // Whether all posted requests are complete.
  bool is_idle() const;

 private:
  // The work in flight to one peer.
  struct InFlight {
    uint64_t recorded_markers = 0, completed_markers = 0;  // counted since the start
    // For each open marker: the value of PortFifo::completed when the marker is complete, or 0 to leave it unchanged.
    std::array<uint64_t, PortTransport::max_open_markers> completed_tickets = {};
    bootstrap::Clock::time_point last_progress;  // when a marker was completed, or the first open one was recorded
    bool has_unmarked_puts = false;              // there are puts after the last marker
    std::vector<uint64_t> signals;               // by port: signals sent so far
  };

  bool next(PortRequest* request) const;
  ncast_status check(const PortRequest& request) const;
  ncast_status check_place(const char* what, const PortPlace& place, const PortRequest& request) const;
  ncast_status begin(const PortRequest& request);
  ncast_status record_marker(uint32_t peer, uint64_t ticket);
  ncast_status poll_markers(uint32_t peer, bool* progressed);

  const PortBounds bounds_;
  PortFifo& fifo_;
  PortTransport& transport_;
  uint64_t consumed_ = 0;
  std::vector<InFlight> in_flight_;  // by peer
};

}  // namespace narrowcast::channel
