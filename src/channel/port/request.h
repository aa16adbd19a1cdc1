// A request from a kernel to the proxy of its rank: 16 bytes in two halves. Each half contains a phase bit that shows
// whether it has been written, so the halves may become visible in either order.
#pragma once

#include <cstdint>

namespace narrowcast::channel {

// The address of a byte in a region of a set of ports.
struct PortPlace {
  uint32_t region;
  uint64_t offset;  // in bytes
};

// One slot of the FIFO. Zero if it has never been written.
struct PortWords {
  uint64_t half[2];
};

struct PortRequest {
  enum Operation : uint32_t { put = 1, signal = 2, flush = 4 };

  // Exclusive limits of the fields. Values that do not fit are encoded as the largest value that does. That value is
  // never valid, so the proxy rejects the request.
  static constexpr uint32_t peers = 1u << 6, ports = 1u << 8, regions = 1u << 5;
  static constexpr uint64_t offset_limit = uint64_t{1} << 36;  // of offsets
  static constexpr uint32_t max_put_bytes = 1u << 26;          // a larger put is split into several requests

  uint32_t operations;
  uint32_t peer;
  uint32_t port;   // whose semaphore is signalled
  PortPlace to;    // in the memory of the peer
  PortPlace from;  // in the memory of this rank
  uint32_t bytes;

  // phase: PortFifo::phase_of(ticket).
  constexpr PortWords words(uint64_t phase) const {
    return {{phase | uint64_t{operations} << 1 | saturated(peer, peers) << 4 | saturated(port, ports) << 10 |
                 saturated(to.region, regions) << 18 | saturated(from.region, regions) << 23 |
                 saturated(from.offset, offset_limit) << 28,
             phase | uint64_t{bytes} << 1 | saturated(to.offset, offset_limit) << 28}};
  }
  static constexpr PortRequest of(const PortWords& words) {
    const auto field = [&](int half, int from, uint64_t below) { return words.half[half] >> from & (below - 1); };
    const auto number = [&](int from, uint64_t below) { return static_cast<uint32_t>(field(0, from, below)); };
    return {number(1, 8),
            number(4, peers),
            number(10, ports),
            {number(18, regions), field(1, 28, offset_limit)},
            {number(23, regions), field(0, 28, offset_limit)},
            static_cast<uint32_t>(field(1, 1, 2 * uint64_t{max_put_bytes}))};
  }

 private:
  static constexpr uint64_t saturated(uint64_t value, uint64_t below) { return value < below ? value : below - 1; }
};

}  // namespace narrowcast::channel
