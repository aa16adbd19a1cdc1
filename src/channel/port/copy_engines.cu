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
  // Use the highest priority. Streams of different priorities have separate hardware queues, so a copy that a kernel
  // waits for is not queued behind work that waits for that kernel.
  int least = 0, greatest = 0;
  cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  if (error == cudaSuccess)
    error = cudaHostAlloc(reinterpret_cast<void**>(&counts_), queues_.size() * max_open_markers * sizeof *counts_,
                          cudaHostAllocPortable);
  for (Queue& queue : queues_) {
    if (error == cudaSuccess) error = cudaStreamCreateWithPriority(&queue.stream, cudaStreamNonBlocking, greatest);
    for (cudaEvent_t& event : queue.events)
      if (error == cudaSuccess) error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  }
  if (error != cudaSuccess) return cuda_failure("setting up the streams of ports", error);
  for (uint32_t peer = 0; peer < queues_.size(); ++peer)
    if (ncast_status status = warm_up(peer)) return status;
  return NCAST_OK;
}

// The first copy of each kind may allocate memory and load code. This could deadlock while kernels wait for the copy,
// so make one of each kind now.
ncast_status CopyEngines::warm_up(uint32_t peer) {
  const auto place = [&](int rank) {
    return memory_.semaphores[static_cast<size_t>(rank)] +
           static_cast<size_t>(memory_.ranks) * memory_.ports * sizeof(uint64_t) +
           static_cast<size_t>(memory_.rank) * 2 * warm_up_bytes;
  };
  Queue& queue = queues_[peer];
  char* const to = place(static_cast<int>(peer)) + warm_up_bytes;
  const char* const from = place(memory_.rank);
  cudaError_t error = cudaMemcpyAsync(to, from, warm_up_bytes, cudaMemcpyDefault, queue.stream);
  if (error == cudaSuccess) error = cudaMemcpyAsync(to + 1, from, warm_up_bytes - 1, cudaMemcpyDefault, queue.stream);
  ncast_status status = checked("copying to", static_cast<int>(peer), error);
  if (status == NCAST_OK) status = set_semaphore(peer, 0, 0);
  if (status == NCAST_OK) status = record_marker(peer);
  if (status == NCAST_OK) status = checked("copying to", static_cast<int>(peer), cudaStreamSynchronize(queue.stream));
  queue.recorded_markers = 0;  // do not count this marker
  return status;
}

CopyEngines::~CopyEngines() {
  for (const Queue& queue : queues_) {
    if (queue.stream != nullptr) {
      cudaStreamSynchronize(queue.stream);
      cudaStreamDestroy(queue.stream);
    }
    for (cudaEvent_t event : queue.events)
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
                 cudaMemcpyAsync(to, from, request.bytes, cudaMemcpyDefault, queues_[request.peer].stream));
}

// Also a copy: the stream runs it after the earlier puts are complete, and 8 aligned bytes arrive atomically. The copy
// reads its source word when it runs. The word is reused max_open_markers markers later, when the marker that follows
// this copy is complete.
ncast_status CopyEngines::set_semaphore(uint32_t peer, uint32_t port, uint64_t count) {
  Queue& queue = queues_[peer];
  uint64_t* const from = counts_ + size_t{peer} * max_open_markers + queue.recorded_markers % max_open_markers;
  *from = count;
  return checked("signalling", static_cast<int>(peer),
                 cudaMemcpyAsync(semaphore(peer, port), from, sizeof count, cudaMemcpyDefault, queue.stream));
}

ncast_status CopyEngines::record_marker(uint32_t peer) {
  Queue& queue = queues_[peer];
  const cudaError_t error = cudaEventRecord(queue.events[queue.recorded_markers % max_open_markers], queue.stream);
  ++queue.recorded_markers;
  return checked("recording an event for", static_cast<int>(peer), error);
}

ncast_status CopyEngines::completed_markers(uint32_t peer, uint64_t* markers) {
  Queue& queue = queues_[peer];
  cudaError_t error = cudaSuccess;
  while (error == cudaSuccess && queue.completed_markers != queue.recorded_markers) {
    error = cudaEventQuery(queue.events[queue.completed_markers % max_open_markers]);
    if (error == cudaSuccess) ++queue.completed_markers;
  }
  *markers = queue.completed_markers;
  return error == cudaErrorNotReady ? NCAST_OK : checked("putting to", static_cast<int>(peer), error);
}

}  // namespace narrowcast::channel
