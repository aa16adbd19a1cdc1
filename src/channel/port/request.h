// What a kernel asks its rank's proxy for: 16 bytes, of which each half says by itself whether it is there. So no half
// need be written before the other, and a store of 16 bytes that arrives in two parts does no harm.
#pragma once

#include <cstdint>

namespace narrowcast::channel {

// A byte of the memory that the ports of all ranks know by the number `region`.
struct PortPlace {
  uint32_t region;
  uint64_t offset;
};

// One slot of the FIFO. All zero is a slot that was never written.
struct PortWords {
  uint64_t half[2];
};

struct PortRequest {
  enum Operation : uint32_t { put = 1, signal = 2, flush = 4 };

  // Numbers are below these. What does not fit becomes the largest that does, which nobody has.
  static constexpr uint32_t peers = 1u << 6, ports = 1u << 8, regions = 1u << 5;
  static constexpr uint64_t reach_bytes = uint64_t{1} << 36;  // offsets
  static constexpr uint32_t most_bytes = 1u << 26;            // a larger put is several requests

  uint32_t operations;
  uint32_t peer;
  uint32_t port;  // whose semaphore is raised
  PortPlace to;   // at the peer
  PortPlace from;
  uint32_t bytes;

  // lap: of the slot, 0 or 1, other than that of the use before.
  constexpr PortWords words(uint64_t lap) const {
    return {{lap | uint64_t{operations} << 1 | fitting(peer, peers) << 4 | fitting(port, ports) << 10 |
                 fitting(to.region, regions) << 18 | fitting(from.region, regions) << 23 |
                 fitting(from.offset, reach_bytes) << 28,
             lap | uint64_t{bytes} << 1 | fitting(to.offset, reach_bytes) << 28}};
  }
  static constexpr PortRequest of(const PortWords& words) {
    const auto field = [&](int half, int from, uint64_t below) { return words.half[half] >> from & (below - 1); };
    const auto number = [&](int from, uint64_t below) { return static_cast<uint32_t>(field(0, from, below)); };
    return {number(1, 8),
            number(4, peers),
            number(10, ports),
            {number(18, regions), field(1, 28, reach_bytes)},
            {number(23, regions), field(0, 28, reach_bytes)},
            static_cast<uint32_t>(field(1, 1, 2 * uint64_t{most_bytes}))};
  }

 private:
  static constexpr uint64_t fitting(uint64_t value, uint64_t below) { return value < below ? value : below - 1; }
};

}  // namespace narrowcast::channel
