// Serves the requests of one set of ports: checks them, has them done in order, and says when they are complete.
#pragma once

#include <array>
#include <vector>

#include "channel/host/world.h"
#include "channel/port/fifo.h"
#include "channel/port/transport.h"

namespace narrowcast::channel {

// What requests may name.
struct PortBounds {
  int rank;
  uint32_t ranks;                      // below PortRequest::peers
  uint32_t ports;                      // below PortRequest::ports
  std::vector<uint64_t> region_bytes;  // fewer than PortRequest::regions, each below PortRequest::reach_bytes
  bootstrap::Limit limit;              // of the time in which nothing that was started for a peer completes
};

// The proxy's thread alone calls, but for the constructor.
class PortService {
 public:
  PortService(PortBounds bounds, PortFifo& fifo, PortTransport& transport);

  // Does what there is to do, without waiting, and leaves when others should have their turn. *moved: there was
  // something. A failure is one of the communicator: INVALID_ARGUMENT (a request is out of bounds; it and those behind
  // it were not begun), TIMEOUT, or the transport's.
  ncast_status serve(bool* moved);

  // Every request that was posted is complete.
  bool is_idle() const;

 private:
  // What is under way to a peer. Marks are counted from the first on.
  struct Way {
    uint64_t made = 0, reached = 0;
    // Of each that is not reached: what PortFifo::completed becomes, or 0 for what it is.
    std::array<uint64_t, PortTransport::most_marks> completes = {};
    bootstrap::Clock::time_point since;  // the last one was reached, or the first one made
    bool is_unmarked = false;            // there are puts behind the last one
    std::vector<uint64_t> raised;        // by port: signals
  };

  bool next(PortRequest* request) const;
  ncast_status check(const PortRequest& request) const;
  ncast_status check_place(const char* what, const PortPlace& place, const PortRequest& request) const;
  ncast_status begin(const PortRequest& request);
  ncast_status mark(uint32_t peer, uint64_t completes);
  ncast_status look_at_marks(uint32_t peer, bool* moved);

  const PortBounds bounds_;
  PortFifo& fifo_;
  PortTransport& transport_;
  uint64_t taken_ = 0;
  std::vector<Way> ways_;  // by peer
};

}  // namespace narrowcast::channel
