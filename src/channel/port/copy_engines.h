// The transport of ports between the GPUs of one machine: the copy engines of this rank's GPU write to the memory of
// the other ranks.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <vector>

#include "channel/peer/peers.h"
#include "channel/port/transport.h"

namespace narrowcast::channel {

class CopyEngines final : public PortTransport {
 public:
  // The addresses of a region of every rank, by rank, as this GPU maps them.
  using Region = std::array<char*, max_gpu_ranks>;

  struct Memory {
    int rank, ranks;
    uint32_t ports;
    std::vector<Region> regions;
    Region semaphores;  // of each rank: one word for each source rank and port, then 2 * warm_up_bytes for each source
  };
  static constexpr size_t warm_up_bytes = 512;
  static size_t semaphore_bytes(int ranks, uint32_t ports) {
    return static_cast<size_t>(ranks) * (ports * sizeof(uint64_t) + 2 * warm_up_bytes);
  }

  // The device must be current. Synchronizes with it. Errors: CUDA_ERROR.
  static ncast_status create(Memory memory, std::unique_ptr<CopyEngines>* result);
  // Waits for the copies in flight.
  ~CopyEngines() override;

  // The device must be current in the calling thread.
  ncast_status put(const PortRequest& request) override;
  ncast_status set_semaphore(uint32_t peer, uint32_t port, uint64_t count) override;
  ncast_status record_marker(uint32_t peer) override;
  ncast_status completed_markers(uint32_t peer, uint64_t* markers) override;

 private:
  // The copies to one peer. Markers are events.
  struct Queue {
    cudaStream_t stream = nullptr;
    uint64_t recorded_markers = 0, completed_markers = 0;
    std::array<cudaEvent_t, max_open_markers> events = {};
  };

  explicit CopyEngines(Memory memory) : memory_(std::move(memory)), queues_(static_cast<size_t>(memory_.ranks)) {}
  ncast_status set_up();
  ncast_status warm_up(uint32_t peer);
  char* semaphore(uint32_t peer, uint32_t port) const;

  const Memory memory_;
  std::vector<Queue> queues_;
  uint64_t* counts_ = nullptr;  // pinned, max_open_markers for each peer: the sources of set_semaphore()
};

}  // namespace narrowcast::channel
