// Memory of every rank that the GPUs of all ranks can access. Each rank allocates its own part and maps the others'.
// Those of ranks on other hosts have a mirror here, which is forwarded (channel/network/forwarder.h).
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "bootstrap/rendezvous.h"
#include "bootstrap/shared_memory.h"
#include "channel/peer/failure.h"
#include "channel/peer/memory_offer.h"
#include "channel/peer/peers.h"

namespace narrowcast::channel {

class PeerMemory {
 public:
  // In GPU memory, or in pinned host memory if two GPUs cannot access each other's memory, or are on different hosts.
  enum class Place { device, host };
  // How the ranks' GPUs are connected.
  struct Topology {
    Place place;      // where the memory must be
    bool nvlink;      // all pairs of GPUs are connected by NVLink
    bool shares_gpu;  // several ranks use the same GPU
  };
  // Ranks on other hosts, as a bit mask, and the parts of their memory that this rank writes, in ascending order: only
  // these exist in the mirrors.
  struct Mirrors {
    struct Part {
      size_t begin, bytes;
    };
    uint32_t ranks = 0;
    std::vector<Part> parts;

    size_t bytes() const;
  };
  // Collective call; each rank's own device must be current. The place is also `host` if any rank sets wants_host.
  // Errors: those of the rendezvous, CUDA_ERROR.
  static ncast_status find_topology(bootstrap::Rendezvous& rendezvous, bool wants_host, Topology* topology);

  // Collective call with the same arguments on all ranks; each rank's own device must be current. The memory is zeroed.
  // There are mirrors only if place is `host`. Errors: CUDA_ERROR, SYSTEM_ERROR, MISMATCH, UNSUPPORTED (a GPU cannot
  // access another's memory); those of the rendezvous.
  static ncast_status create(bootstrap::Rendezvous& rendezvous, Place place, size_t bytes, const Mirrors& mirrors,
                             std::unique_ptr<PeerMemory>* result);

  // No kernel of this rank may use the memory any more. Waits until the other ranks destroy theirs. If that fails, this
  // rank's memory is not freed, because a peer may still write to it.
  ~PeerMemory();

  // For kernels.
  char* of(int rank) const { return addresses_[static_cast<size_t>(rank)]; }
  // For the CPU, if place is `host`.
  char* on_host(int rank) const { return on_host_[static_cast<size_t>(rank)]; }

 private:
  explicit PeerMemory(bootstrap::Rendezvous& rendezvous) : rendezvous_(rendezvous) {}
  ncast_status map_device_memory(size_t bytes);
  ncast_status map_host_memory(size_t bytes, const Mirrors& mirrors);
  ncast_status make_mirror(size_t rank, size_t bytes, const std::vector<Mirrors::Part>& parts);
  ncast_status map_segment(size_t rank, const char* name, size_t bytes);
  ncast_status pin(void* memory, size_t bytes, char** address);

  bootstrap::Rendezvous& rendezvous_;
  std::array<char*, max_gpu_ranks> addresses_ = {}, on_host_ = {};
  bool shared_ = false;  // the other ranks may have mapped it
  char* own_ = nullptr;  // device memory
  std::array<MappedMemory, max_gpu_ranks> mapped_;
  std::array<bootstrap::SharedMemory, max_gpu_ranks> segments_;
  std::vector<std::span<char>> mirrors_;
  std::vector<void*> registered_;
};

}  // namespace narrowcast::channel
