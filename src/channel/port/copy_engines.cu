#include <cuda_runtime.h>

#include "channel/peer/peer_memory.h"
#include "channel/port/copy_engines.h"
#include "status/error.h"

namespace narrowcast::channel {
namespace {

ncast_status checked(const char* what, int peer, cudaError_t error) {
  if (error == cudaSuccess) return NCAST_OK;
  return fail(NCAST_CUDA_ERROR, "%s rank %d: %s", what, peer, cudaGetErrorString(error));
}

}  // namespace

ncast_status CopyEngines::create(Memory memory, std::unique_ptr<CopyEngines>* result) {
  std::unique_ptr<CopyEngines> engines(new CopyEngines(std::move(memory)));
  if (ncast_status status = engines->set_up()) return status;
  *result = std::move(engines);
  return NCAST_OK;
}

ncast_status CopyEngines::set_up() {
  // The highest priority: streams of another one have queues of their own, and what a kernel waits for does not stand
  // in a queue behind what waits for that kernel.
  int least = 0, greatest = 0;
  cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  if (error == cudaSuccess)
    error = cudaHostAlloc(reinterpret_cast<void**>(&counts_), ways_.size() * most_marks * sizeof *counts_,
                          cudaHostAllocPortable);
  for (Way& way : ways_) {
    if (error == cudaSuccess) error = cudaStreamCreateWithPriority(&way.stream, cudaStreamNonBlocking, greatest);
    for (cudaEvent_t& event : way.events)
      if (error == cudaSuccess) error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  }
  if (error != cudaSuccess) return cuda_failure("setting up the streams of ports", error);
  for (uint32_t peer = 0; peer < ways_.size(); ++peer)
    if (ncast_status status = warm_up(peer)) return status;
  return NCAST_OK;
}

// The first copies of a kind may allocate and load, which must not happen while kernels wait for them.
ncast_status CopyEngines::warm_up(uint32_t peer) {
  const auto place = [&](int rank) {
    return memory_.semaphores[static_cast<size_t>(rank)] +
           static_cast<size_t>(memory_.ranks) * memory_.ports * sizeof(uint64_t) +
           static_cast<size_t>(memory_.rank) * 2 * warm_up_bytes;
  };
  Way& way = ways_[peer];
  char* const to = place(static_cast<int>(peer)) + warm_up_bytes;
  const char* const from = place(memory_.rank);
  cudaError_t error = cudaMemcpyAsync(to, from, warm_up_bytes, cudaMemcpyDefault, way.stream);
  if (error == cudaSuccess) error = cudaMemcpyAsync(to + 1, from, warm_up_bytes - 1, cudaMemcpyDefault, way.stream);
  ncast_status status = checked("copying to", static_cast<int>(peer), error);
  if (status == NCAST_OK) status = raise(peer, 0, 0);
  if (status == NCAST_OK) status = mark(peer);
  if (status == NCAST_OK) status = checked("copying to", static_cast<int>(peer), cudaStreamSynchronize(way.stream));
  way.made = 0;  // that mark does not count
  return status;
}

CopyEngines::~CopyEngines() {
  for (const Way& way : ways_) {
    if (way.stream != nullptr) {
      cudaStreamSynchronize(way.stream);
      cudaStreamDestroy(way.stream);
    }
    for (cudaEvent_t event : way.events)
      if (event != nullptr) cudaEventDestroy(event);
  }
  if (counts_ != nullptr) cudaFreeHost(counts_);
}

char* CopyEngines::semaphore(uint32_t peer, uint32_t port) const {
  return memory_.semaphores[peer] + (static_cast<size_t>(memory_.rank) * memory_.ports + port) * sizeof(uint64_t);
}

ncast_status CopyEngines::put(const PortRequest& request) {
  char* const to = memory_.regions[request.to.region][request.peer] + request.to.offset;
  const char* const from =
      memory_.regions[request.from.region][static_cast<size_t>(memory_.rank)] + request.from.offset;
  return checked("putting to", static_cast<int>(request.peer),
                 cudaMemcpyAsync(to, from, request.bytes, cudaMemcpyDefault, ways_[request.peer].stream));
}

// By a copy as well: the stream begins it when the puts before are complete, and 8 aligned bytes arrive at once. It
// reads its count when it runs. That word is used again most_marks marks later, when the mark that follows this has
// been reached.
ncast_status CopyEngines::raise(uint32_t peer, uint32_t port, uint64_t count) {
  Way& way = ways_[peer];
  uint64_t* const from = counts_ + size_t{peer} * most_marks + way.made % most_marks;
  *from = count;
  return checked("signalling", static_cast<int>(peer),
                 cudaMemcpyAsync(semaphore(peer, port), from, sizeof count, cudaMemcpyDefault, way.stream));
}

ncast_status CopyEngines::mark(uint32_t peer) {
  Way& way = ways_[peer];
  const cudaError_t error = cudaEventRecord(way.events[way.made % most_marks], way.stream);
  ++way.made;
  return checked("marking what was put to", static_cast<int>(peer), error);
}

ncast_status CopyEngines::marks_reached(uint32_t peer, uint64_t* marks) {
  Way& way = ways_[peer];
  cudaError_t error = cudaSuccess;
  while (error == cudaSuccess && way.reached != way.made) {
    error = cudaEventQuery(way.events[way.reached % most_marks]);
    if (error == cudaSuccess) ++way.reached;
  }
  *marks = way.reached;
  return error == cudaErrorNotReady ? NCAST_OK : checked("putting to", static_cast<int>(peer), error);
}

}  // namespace narrowcast::channel
