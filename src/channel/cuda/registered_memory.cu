#include <cstdio>
#include <string>
#include <vector>

#include "channel/cuda/registered_memory.h"
#include "status/error.h"

namespace narrowcast::channel {
namespace {

// What came of something that each rank does for itself.
struct Outcome {
  ncast_status status;
  char sentence[200];

  static Outcome of(ncast_status status) {
    Outcome outcome{status, {}};
    if (status != NCAST_OK) std::snprintf(outcome.sentence, sizeof outcome.sentence, "%s", ncast_last_error());
    return outcome;
  }
};

struct Part {
  Outcome outcome;
  MemoryOffer offer;
};

ncast_status failure_of(int rank, const Outcome& outcome) {
  return fail(outcome.status, "rank %d: %.*s", rank, static_cast<int>(sizeof outcome.sentence), outcome.sentence);
}

}  // namespace

ncast_status RegisteredMemory::create(Rendezvous& rendezvous, char* own, size_t bytes,
                                      std::unique_ptr<RegisteredMemory>* result) {
  std::unique_ptr<RegisteredMemory> memory(new RegisteredMemory(rendezvous, own, bytes));
  if (ncast_status status = memory->map_all()) {
    const std::string sentence = ncast_last_error();
    memory.reset();
    return fail(status, "%s", sentence.c_str());
  }
  *result = std::move(memory);
  return NCAST_OK;
}

ncast_status RegisteredMemory::map_all() {
  const auto ranks = static_cast<size_t>(rendezvous_.ranks()), rank = static_cast<size_t>(rendezvous_.rank());
  Part mine = {};
  mine.outcome = Outcome::of(own_ != nullptr || bytes_ != 0 ? MemoryOffer::make(own_, bytes_, &mine.offer)
                                                            : GpuOfRank::find(&mine.offer.gpu));
  std::vector<Part> parts(ranks);
  if (ncast_status status = rendezvous_.all_gather(&mine, sizeof mine, parts.data())) return status;
  for (size_t peer = 0; peer < ranks; ++peer)
    if (parts[peer].outcome.status != NCAST_OK) return failure_of(static_cast<int>(peer), parts[peer].outcome);

  ncast_status mapped = NCAST_OK;
  for (size_t peer = 0; peer < ranks && mapped == NCAST_OK; ++peer)
    if (peer != rank && parts[peer].offer.address != nullptr)
      mapped = mapped_[peer].map(mine.offer.gpu, parts[peer].offer);
  const Outcome outcome = Outcome::of(mapped);
  std::vector<Outcome> outcomes(ranks);
  if (ncast_status status = rendezvous_.all_gather(&outcome, sizeof outcome, outcomes.data())) return status;
  for (size_t peer = 0; peer < ranks; ++peer)
    if (outcomes[peer].status != NCAST_OK) return failure_of(static_cast<int>(peer), outcomes[peer]);
  return NCAST_OK;
}

RegisteredMemory::~RegisteredMemory() {
  for (MappedMemory& mapped : mapped_) mapped.unmap();
  // When it fails, the communicator has failed, and its kernels have ended.
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
