// What brings the requests of ports to the peers. Between GPUs of one machine these are copy engines
// (cuda/copy_engines.h); a network would be another.
#pragma once

#include <cstdint>

#include "channel/port/request.h"
#include "narrowcast/types.h"

namespace narrowcast::channel {

// The proxy's thread alone calls, with requests that are within bounds. Calls start work and return; the work for one
// peer is done in the order of the calls.
class PortTransport {
 public:
  virtual ~PortTransport() = default;

  // Copies request.bytes.
  virtual ncast_status put(const PortRequest& request) = 0;
  // Sets the semaphore that the peer keeps for this rank's port. The peer's kernel that sees `count` there sees all
  // that was put before. A mark follows before anything else.
  virtual ncast_status raise(uint32_t peer, uint32_t port, uint64_t count) = 0;
  // Marks what was started for the peer so far.
  virtual ncast_status mark(uint32_t peer) = 0;
  // How many marks have been reached, from the first on: what was started before them is at the peer, and its sources
  // are not read any more. At any time most_marks at most are not.
  virtual ncast_status marks_reached(uint32_t peer, uint64_t* marks) = 0;
  static constexpr uint32_t most_marks = 64;
};

}  // namespace narrowcast::channel
