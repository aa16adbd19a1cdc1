// Requests of ports between the GPUs of one machine: the copy engines of this rank's GPU write to the memory of the
// others.
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
  // As this GPU addresses it, by rank.
  using Region = std::array<char*, max_gpu_ranks>;

  struct Memory {
    int rank, ranks;
    uint32_t ports;
    std::vector<Region> regions;
    Region semaphores;  // of each rank, by source and port; 2 * warm_up_bytes of each source's own follow
  };
  static constexpr size_t warm_up_bytes = 512;
  static size_t semaphore_bytes(int ranks, uint32_t ports) {
    return static_cast<size_t>(ranks) * (ports * sizeof(uint64_t) + 2 * warm_up_bytes);
  }

  // With the device current; waits for it. Errors: CUDA_ERROR.
  static ncast_status create(Memory memory, std::unique_ptr<CopyEngines>* result);
  // Waits for what it has started.
  ~CopyEngines() override;

  // In a thread that has the device current.
  ncast_status put(const PortRequest& request) override;
  ncast_status raise(uint32_t peer, uint32_t port, uint64_t count) override;
  ncast_status mark(uint32_t peer) override;
  ncast_status marks_reached(uint32_t peer, uint64_t* marks) override;

 private:
  // To a peer.
  struct Way {
    cudaStream_t stream = nullptr;
    uint64_t made = 0, reached = 0;  // marks
    std::array<cudaEvent_t, most_marks> events = {};
  };

  explicit CopyEngines(Memory memory) : memory_(std::move(memory)), ways_(static_cast<size_t>(memory_.ranks)) {}
  ncast_status set_up();
  ncast_status warm_up(uint32_t peer);
  char* semaphore(uint32_t peer, uint32_t port) const;

  const Memory memory_;
  std::vector<Way> ways_;
  uint64_t* counts_ = nullptr;  // pinned, most_marks a peer: what raise() copies, each until the mark that follows
};

}  // namespace narrowcast::channel
