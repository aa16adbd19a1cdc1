#include <string>
#include <vector>

#include "bootstrap/outcome.h"
#include "channel/peer/registered_memory.h"
#include "status/error.h"

namespace narrowcast::channel {
namespace {

struct Part {
  bootstrap::Outcome outcome;
  MemoryOffer offer;
};

}  // namespace

ncast_status RegisteredMemory::create(bootstrap::Rendezvous& rendezvous, char* own, size_t bytes,
                                      std::unique_ptr<RegisteredMemory>* result) {
  std::unique_ptr<RegisteredMemory> memory(new RegisteredMemory(rendezvous, own, bytes));
  if (ncast_status status = memory->map_all()) {
    const std::string message = ncast_last_error();
    memory.reset();
    return fail(status, "%s", message.c_str());
  }
  *result = std::move(memory);
  return NCAST_OK;
}

ncast_status RegisteredMemory::map_all() {
  const auto ranks = static_cast<size_t>(rendezvous_.ranks()), rank = static_cast<size_t>(rendezvous_.rank());
  Part mine = {};
  mine.outcome = bootstrap::Outcome::of(own_ != nullptr || bytes_ != 0 ? MemoryOffer::make(own_, bytes_, &mine.offer)
                                                                       : RankGpu::find(&mine.offer.gpu));
  std::vector<Part> parts(ranks);
  if (ncast_status status = rendezvous_.all_gather(&mine, sizeof mine, parts.data())) return status;
  for (size_t peer = 0; peer < ranks; ++peer)
    if (parts[peer].outcome.status != NCAST_OK) return parts[peer].outcome.failure_of(static_cast<int>(peer));

  ncast_status mapped = NCAST_OK;
  for (size_t peer = 0; peer < ranks && mapped == NCAST_OK; ++peer)
    if (peer != rank && parts[peer].offer.address != nullptr)
      mapped = mapped_[peer].map(mine.offer.gpu, parts[peer].offer);
  return bootstrap::agree_on_outcome(rendezvous_, mapped);
}

RegisteredMemory::~RegisteredMemory() {
  for (MappedMemory& mapped : mapped_) mapped.unmap();
  // If the barrier fails, the communicator has failed and its kernels have ended.
  rendezvous_.barrier();
}

char* RegisteredMemory::of(int rank) const {
  return rank == rendezvous_.rank() ? own_ : mapped_[static_cast<size_t>(rank)].address();
}

bool RegisteredMemory::holds(const void* values, uint64_t bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(own_), at = reinterpret_cast<uintptr_t>(values);
  return own_ != nullptr && at >= begin && at - begin <= bytes_ && bytes <= bytes_ - (at - begin);
}

}  // namespace narrowcast::channel
