#include <cuda_runtime.h>
#include <unistd.h>

#include <cstring>

#include "channel/cuda/peer_memory.h"
#include "channel/shared_memory.h"
#include "status/error.h"

namespace narrowcast::channel {
namespace {

// What a rank tells the others of its memory.
struct Offer {
  uint64_t process[2];  // the same for ranks of one process
  uint64_t bytes;
  char* address;
  cudaIpcMemHandle_t handle;  // for other processes
  char gpu[32];               // its PCI address
  int device;                 // as its process counts
};

// A number that no other process has: a pid may be another's in another container.
ncast_status process_number(uint64_t (&number)[2]) {
  static uint64_t made[2];
  static pid_t maker = 0;
  if (maker != getpid()) {
    if (ncast_status status = random_bytes(&made, sizeof made)) return status;
    maker = getpid();
  }
  std::memcpy(number, made, sizeof made);
  return NCAST_OK;
}

}  // namespace

ncast_status cuda_failure(const char* what, int error) {
  return fail(NCAST_CUDA_ERROR, "%s: %s", what, cudaGetErrorString(static_cast<cudaError_t>(error)));
}

ncast_status PeerMemory::create(Rendezvous& rendezvous, size_t bytes, std::unique_ptr<PeerMemory>* result) {
  std::unique_ptr<PeerMemory> memory(new PeerMemory(rendezvous));
  if (ncast_status status = memory->map(bytes)) return status;
  *result = std::move(memory);
  return NCAST_OK;
}

ncast_status PeerMemory::map(size_t bytes) {
  Offer own = {};
  if (ncast_status status = process_number(own.process)) return status;
  own.bytes = bytes;
  cudaError_t error = cudaGetDevice(&own.device);
  if (error == cudaSuccess) error = cudaDeviceGetPCIBusId(own.gpu, sizeof own.gpu, own.device);
  if (error == cudaSuccess) error = cudaMalloc(reinterpret_cast<void**>(&own_), bytes);
  if (error == cudaSuccess) error = cudaMemset(own_, 0, bytes);
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  if (error == cudaSuccess) error = cudaIpcGetMemHandle(&own.handle, own_);
  if (error != cudaSuccess) return cuda_failure("scratch memory", error);
  own.address = own_;

  std::vector<Offer> offers(static_cast<size_t>(rendezvous_.ranks()));
  if (ncast_status status = rendezvous_.all_gather(&own, sizeof own, offers.data())) return status;
  shared_ = true;
  for (int rank = 0; rank < rendezvous_.ranks(); ++rank) {
    const Offer& offer = offers[static_cast<size_t>(rank)];
    if (offer.bytes != bytes) {
      return fail(NCAST_MISMATCH, "rank %d has %llu bytes of scratch memory, rank %d has %zu", rank,
                  static_cast<unsigned long long>(offer.bytes), rendezvous_.rank(), bytes);
    }
    char*& address = addresses_[static_cast<size_t>(rank)];
    if (rank == rendezvous_.rank()) {
      address = own_;
      continue;
    }
    if (std::memcmp(offer.process, own.process, sizeof own.process) != 0) {
      error = cudaIpcOpenMemHandle(reinterpret_cast<void**>(&address), offer.handle, cudaIpcMemLazyEnablePeerAccess);
      if (error == cudaSuccess) opened_.push_back(address);
    } else {
      address = offer.address;
      error = offer.device == own.device ? cudaSuccess : cudaDeviceEnablePeerAccess(offer.device, 0);
      if (error == cudaErrorPeerAccessAlreadyEnabled) error = cudaSuccess;
    }
    if (error != cudaSuccess) {
      cudaGetLastError();  // it is told here, and not to the next who asks
      return fail(NCAST_UNSUPPORTED, "the GPU of rank %d (%s) cannot reach that of rank %d (%s): %s",
                  rendezvous_.rank(), own.gpu, rank, offer.gpu, cudaGetErrorString(error));
    }
  }
  return NCAST_OK;
}

PeerMemory::~PeerMemory() {
  // Twice: nobody writes here any more; nobody has it mapped any more.
  bool alone = !shared_ || rendezvous_.barrier() == NCAST_OK;
  for (char* address : opened_) cudaIpcCloseMemHandle(address);
  alone = alone && (!shared_ || rendezvous_.barrier() == NCAST_OK);
  if (alone && own_ != nullptr) cudaFree(own_);
}

}  // namespace narrowcast::channel
