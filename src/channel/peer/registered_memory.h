// Users' memory that the ranks have registered together. The kernels of all ranks can access it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "bootstrap/rendezvous.h"
#include "channel/peer/memory_offer.h"
#include "channel/peer/peers.h"

namespace narrowcast::channel {

class RegisteredMemory {
 public:
  // Collective call; each rank's own device must be current. Each rank shares `bytes` bytes at `own`, or none if `own`
  // is NULL. The memory must stay allocated as long as this object exists. Errors, the same on all ranks:
  // INVALID_ARGUMENT and UNSUPPORTED, whose messages name the rank; those of the rendezvous.
  static ncast_status create(bootstrap::Rendezvous& rendezvous, char* own, size_t bytes,
                             std::unique_ptr<RegisteredMemory>* result);

  // No kernel of this rank may use the other ranks' memory any more. Waits until the other ranks have unmapped this
  // rank's memory.
  ~RegisteredMemory();

  // Address of the rank's memory in this process; NULL if the rank shares none.
  char* of(int rank) const;
  // Whether this rank's memory contains these bytes, and, if it does, their offset in bytes.
  bool holds(const void* values, uint64_t bytes) const;
  uint64_t offset_of(const void* values) const {
    return static_cast<uint64_t>(static_cast<const char*>(values) - own_);
  }

 private:
  RegisteredMemory(bootstrap::Rendezvous& rendezvous, char* own, size_t bytes)
      : rendezvous_(rendezvous), own_(own), bytes_(bytes) {}
  ncast_status map_all();

  bootstrap::Rendezvous& rendezvous_;
  char* own_;
  size_t bytes_;
  std::array<MappedMemory, max_gpu_ranks> mapped_;
};

}  // namespace narrowcast::channel
