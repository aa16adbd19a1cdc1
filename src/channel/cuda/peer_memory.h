// Device memory of every rank that all ranks can address: each allocates its own, and maps those of the others.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "channel/cuda/peers.h"
#include "channel/rendezvous.h"

namespace narrowcast::channel {

class PeerMemory {
 public:
  // All ranks call, each with its own device current and the same `bytes`. The memory is zero. Errors: CUDA_ERROR;
  // UNSUPPORTED when two GPUs cannot reach each other, or ranks share one that cannot; MISMATCH; those of the rendezvous.
  static ncast_status create(Rendezvous& rendezvous, size_t bytes, std::unique_ptr<PeerMemory>* result);

  // No kernel of this rank uses the memory any more. Waits for the others to come here too, and not for long: when one
  // does not, this rank's memory is left to the end of the process, since a peer may still write to it.
  ~PeerMemory();

  char* of(int rank) const { return addresses_[static_cast<size_t>(rank)]; }

 private:
  explicit PeerMemory(Rendezvous& rendezvous) : rendezvous_(rendezvous) {}
  ncast_status map(size_t bytes);

  Rendezvous& rendezvous_;
  std::array<char*, max_gpu_ranks> addresses_ = {};
  std::vector<char*> opened_;  // of other processes
  char* own_ = nullptr;
  bool shared_ = false;  // the others know of it
};

// A sentence for a failed CUDA call: NCAST_CUDA_ERROR.
ncast_status cuda_failure(const char* what, int error);

}  // namespace narrowcast::channel
