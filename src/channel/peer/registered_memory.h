// Memory of users that the ranks have registered together: the kernels of all ranks address it.
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
  // All ranks call, each with its own device current and with memory of its own: `bytes` at `own`, which stays
  // allocated until this object is gone; NULL of a rank that has none to share. Errors, on all ranks the same:
  // INVALID_ARGUMENT and UNSUPPORTED, which say whose memory it is; those of the rendezvous.
  static ncast_status create(bootstrap::Rendezvous& rendezvous, char* own, size_t bytes,
                             std::unique_ptr<RegisteredMemory>* result);

  // No kernel of this rank uses the memory of another one any more. Waits for the others to come here too: then none
  // has this rank's memory mapped.
  ~RegisteredMemory();

  // As this GPU addresses it; NULL: that rank shares none.
  char* of(int rank) const;
  // Whether these bytes are of this rank's memory, and then how far behind its begin.
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
