// Memory of every rank that the GPUs of all ranks can address: each rank makes its own, and maps those of the others.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "bootstrap/rendezvous.h"
#include "bootstrap/shared_memory.h"
#include "channel/peer/failure.h"
#include "channel/peer/memory_offer.h"
#include "channel/peer/peers.h"

namespace narrowcast::channel {

class PeerMemory {
 public:
  // In the ranks' GPUs; or in host memory, pinned, where two GPUs cannot reach each other.
  enum class Place { device, host };
  // How the ranks' GPUs reach each other.
  struct Topology {
    Place place;  // where the memory has to be
    bool nvlink;  // all GPUs are linked by it
  };
  // All ranks call, each with its own device current. The place is `host` also if any of them wants that. Errors: those
  // of the rendezvous, CUDA_ERROR.
  static ncast_status find_topology(bootstrap::Rendezvous& rendezvous, bool wants_host, Topology* topology);

  // All ranks call, each with its own device current, with the same arguments. The memory is zero. Errors: CUDA_ERROR,
  // SYSTEM_ERROR, MISMATCH, UNSUPPORTED (a GPU does not reach another's memory); those of the rendezvous.
  static ncast_status create(bootstrap::Rendezvous& rendezvous, Place place, size_t bytes,
                             std::unique_ptr<PeerMemory>* result);

  // No kernel of this rank uses the memory any more. Waits for the others to come here too; when they fail, this rank's
  // memory is left to the end of the process, since a peer may still write to it.
  ~PeerMemory();

  char* of(int rank) const { return addresses_[static_cast<size_t>(rank)]; }

 private:
  explicit PeerMemory(bootstrap::Rendezvous& rendezvous) : rendezvous_(rendezvous) {}
  ncast_status map_device_memory(size_t bytes);
  ncast_status map_host_memory(size_t bytes);
  ncast_status register_segment(int rank);

  bootstrap::Rendezvous& rendezvous_;
  std::array<char*, max_gpu_ranks> addresses_ = {};
  bool shared_ = false;  // the others know of it
  char* own_ = nullptr;  // device memory
  std::array<MappedMemory, max_gpu_ranks> mapped_;
  std::array<bootstrap::SharedMemory, max_gpu_ranks> segments_;
  std::vector<void*> registered_;
};

}  // namespace narrowcast::channel
