// The seam between ports and the hardware that copies. CopyEngines implements it for the GPUs of one machine; a network
// would be another implementation.
#pragma once

#include <cstdint>

#include "channel/port/request.h"
#include "narrowcast/types.h"

namespace narrowcast::channel {

// Called by the proxy thread only, with requests that are within bounds. The functions start work and return. Work for
// one peer runs in the order of the calls.
class PortTransport {
 public:
  virtual ~PortTransport() = default;

  // Copies request.bytes.
  virtual ncast_status put(const PortRequest& request) = 0;
  // Sets the peer's semaphore for `port` of this rank to `count`. A kernel of the peer that reads `count` also sees the
  // data of all earlier puts. The next call for this peer must be record_marker().
  virtual ncast_status set_semaphore(uint32_t peer, uint32_t port, uint64_t count) = 0;
  // Records a marker after all work that was started for the peer.
  virtual ncast_status record_marker(uint32_t peer) = 0;
  // Sets *markers to the number of the peer's markers that are complete, counted since the start. When a marker is
  // complete, the work before it has arrived at the peer and its sources are no longer read. At most max_open_markers
  // may be incomplete at any time.
  virtual ncast_status completed_markers(uint32_t peer, uint64_t* markers) = 0;
  static constexpr uint32_t max_open_markers = 64;
};

}  // namespace narrowcast::channel
