#include <cuda_runtime.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>

#include "channel/cuda/peer_memory.h"
#include "channel/cuda/wants_host.h"
#include "status/error.h"

namespace narrowcast::channel {
namespace {

// Who a rank is, for finding out who can reach whom.
struct Gpu {
  uint64_t process[2];  // the same for ranks of one process
  char address[32];     // on the PCI bus
  int device;           // as its process counts
  int wants_host;
};

// What a rank tells the others of its memory.
struct Offer {
  uint64_t bytes;
  char* address;
  cudaIpcMemHandle_t handle;  // of device memory, for other processes
  char segment[64];           // of host memory: its name
};

// A segment's own page comes before the memory.
constexpr size_t segment_head_bytes = 4096;
static_assert(sizeof(SegmentOwners) <= segment_head_bytes);

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

ncast_status find_gpu(Gpu* gpu) {
  *gpu = {};
  if (ncast_status status = process_number(gpu->process)) return status;
  cudaError_t error = cudaGetDevice(&gpu->device);
  if (error == cudaSuccess) error = cudaDeviceGetPCIBusId(gpu->address, sizeof gpu->address, gpu->device);
  if (error != cudaSuccess) return cuda_failure("finding the GPU", error);
  gpu->wants_host = wants_host_memory();
  return NCAST_OK;
}

// A GPU that this process does not see is taken to be reachable: mapping its memory will tell.
bool can_reach(const Gpu& own, const Gpu& other) {
  int ordinal = 0, can = 0;
  if (std::strcmp(own.address, other.address) == 0) return true;
  if (cudaDeviceGetByPCIBusId(&ordinal, other.address) == cudaSuccess &&
      cudaDeviceCanAccessPeer(&can, own.device, ordinal) == cudaSuccess)
    return can != 0;
  cudaGetLastError();  // it was a question
  return true;
}

ncast_status check_bytes(const std::vector<Offer>& offers, size_t bytes) {
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    if (offers[rank].bytes == bytes) continue;
    return fail(NCAST_MISMATCH, "rank %zu shares %" PRIu64 " bytes of memory, and this rank %zu", rank,
                offers[rank].bytes, bytes);
  }
  return NCAST_OK;
}

}  // namespace

ncast_status cuda_failure(const char* what, int error) {
  return fail(NCAST_CUDA_ERROR, "%s: %s", what, cudaGetErrorString(static_cast<cudaError_t>(error)));
}

ncast_status PeerMemory::choose_place(Rendezvous& rendezvous, Place* place) {
  Gpu own;
  if (ncast_status status = find_gpu(&own)) return status;
  std::vector<Gpu> all(static_cast<size_t>(rendezvous.ranks()));
  if (ncast_status status = rendezvous.all_gather(&own, sizeof own, all.data())) return status;
  char needs_host = 0;
  for (const Gpu& other : all)
    if (other.wants_host != 0 || !can_reach(own, other)) needs_host = 1;
  std::vector<char> need(all.size());
  if (ncast_status status = rendezvous.all_gather(&needs_host, 1, need.data())) return status;
  *place = Place::device;
  for (const char host : need)
    if (host != 0) *place = Place::host;
  return NCAST_OK;
}

ncast_status PeerMemory::create(Rendezvous& rendezvous, Place place, size_t bytes,
                                std::unique_ptr<PeerMemory>* result) {
  std::unique_ptr<PeerMemory> memory(new PeerMemory(rendezvous));
  if (ncast_status status = place == Place::device ? memory->map_device_memory(bytes) : memory->map_host_memory(bytes))
    return status;
  *result = std::move(memory);
  return NCAST_OK;
}

ncast_status PeerMemory::map_device_memory(size_t bytes) {
  Gpu gpu;
  if (ncast_status status = find_gpu(&gpu)) return status;
  Offer own = {};
  own.bytes = bytes;
  cudaError_t error = cudaMalloc(reinterpret_cast<void**>(&own_), bytes);
  if (error == cudaSuccess) error = cudaMemset(own_, 0, bytes);
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  if (error == cudaSuccess) error = cudaIpcGetMemHandle(&own.handle, own_);
  if (error != cudaSuccess) return cuda_failure("scratch memory", error);
  own.address = own_;

  const auto ranks = static_cast<size_t>(rendezvous_.ranks());
  std::vector<Gpu> gpus(ranks);
  std::vector<Offer> offers(ranks);
  if (ncast_status status = rendezvous_.all_gather(&gpu, sizeof gpu, gpus.data())) return status;
  if (ncast_status status = rendezvous_.all_gather(&own, sizeof own, offers.data())) return status;
  shared_ = true;
  if (ncast_status status = check_bytes(offers, bytes)) return status;
  for (size_t rank = 0; rank < ranks; ++rank) {
    char*& address = addresses_[rank];
    if (static_cast<int>(rank) == rendezvous_.rank()) {
      address = own_;
      continue;
    }
    if (std::memcmp(gpus[rank].process, gpu.process, sizeof gpu.process) != 0) {
      error =
          cudaIpcOpenMemHandle(reinterpret_cast<void**>(&address), offers[rank].handle, cudaIpcMemLazyEnablePeerAccess);
      if (error == cudaSuccess) opened_.push_back(address);
    } else {
      address = offers[rank].address;
      error = gpus[rank].device == gpu.device ? cudaSuccess : cudaDeviceEnablePeerAccess(gpus[rank].device, 0);
      if (error == cudaErrorPeerAccessAlreadyEnabled) error = cudaSuccess;
    }
    cudaGetLastError();  // it is told here, and not to the next who asks
    if (error != cudaSuccess)
      return fail(NCAST_UNSUPPORTED, "the GPU of rank %d (%s) cannot reach that of rank %zu (%s): %s",
                  rendezvous_.rank(), gpu.address, rank, gpus[rank].address, cudaGetErrorString(error));
  }
  return NCAST_OK;
}

ncast_status PeerMemory::map_host_memory(size_t bytes) {
  const auto rank = static_cast<size_t>(rendezvous_.rank());
  SharedMemory& segment = segments_[rank];
  Offer own = {};
  own.bytes = bytes;
  uint64_t number[2];
  if (ncast_status status = random_bytes(&number, sizeof number)) return status;
  std::snprintf(own.segment, sizeof own.segment, "%s%016" PRIx64 "%016" PRIx64, segment_prefix, number[0], number[1]);
  if (ncast_status status = segment.create(segment_head_bytes + bytes)) return status;
  if (ncast_status status = segment.allocate(0, segment_head_bytes + bytes)) return status;
  // So that a sweeper finds it when this process is killed before it takes the name away.
  auto* owners = reinterpret_cast<SegmentOwners*>(segment.data());
  owners->magic = segment_magic;
  owners->owner[0].process = current_process();
  owners->owner[0].state.store(SegmentOwners::joined, std::memory_order_release);
  bool taken = false;
  if (ncast_status status = segment.publish(own.segment, &taken)) return status;

  std::vector<Offer> offers(static_cast<size_t>(rendezvous_.ranks()));
  ncast_status status = rendezvous_.all_gather(&own, sizeof own, offers.data());
  if (status == NCAST_OK) status = check_bytes(offers, bytes);
  for (size_t peer = 0; status == NCAST_OK && peer < offers.size(); ++peer) {
    bool found = true;
    offers[peer].segment[sizeof offers[peer].segment - 1] = 0;
    if (peer != rank) status = segments_[peer].open(offers[peer].segment, &found);
    if (status == NCAST_OK && (!found || segments_[peer].bytes() != segment_head_bytes + bytes))
      status = fail(NCAST_SYSTEM_ERROR,
                    "the shared memory of rank %zu cannot be seen from rank %zu: do they share /dev/shm?", peer, rank);
    if (status == NCAST_OK) status = register_segment(static_cast<int>(peer));
  }
  if (status == NCAST_OK) status = rendezvous_.barrier();
  const std::string sentence = ncast_last_error();
  unlink_segment(own.segment);
  shared_ = status == NCAST_OK;
  return status == NCAST_OK ? NCAST_OK : fail(status, "%s", sentence.c_str());
}

ncast_status PeerMemory::register_segment(int rank) {
  const SharedMemory& segment = segments_[static_cast<size_t>(rank)];
  char* const data = reinterpret_cast<char*>(segment.data()) + segment_head_bytes;
  const size_t bytes = segment.bytes() - segment_head_bytes;
  cudaError_t error = cudaHostRegister(data, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (error == cudaSuccess) {
    registered_.push_back(data);
    error = cudaHostGetDevicePointer(reinterpret_cast<void**>(&addresses_[static_cast<size_t>(rank)]), data, 0);
  }
  return error == cudaSuccess ? NCAST_OK : cuda_failure("pinning shared host memory", error);
}

PeerMemory::~PeerMemory() {
  // Twice: nobody writes here any more; nobody has it mapped any more.
  bool alone = !shared_ || rendezvous_.barrier() == NCAST_OK;
  for (char* address : opened_) cudaIpcCloseMemHandle(address);
  for (void* data : registered_) cudaHostUnregister(data);
  alone = alone && (!shared_ || rendezvous_.barrier() == NCAST_OK);
  if (alone && own_ != nullptr) cudaFree(own_);
}

}  // namespace narrowcast::channel
