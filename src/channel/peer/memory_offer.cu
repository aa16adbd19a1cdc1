#include <cudaTypedefs.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <cinttypes>
#include <cstring>
#include <mutex>
#include <utility>

#include "bootstrap/host.h"
#include "bootstrap/shared_memory.h"
#include "channel/peer/failure.h"
#include "channel/peer/memory_offer.h"
#include "status/error.h"

namespace narrowcast::channel {
namespace {

// A random number that identifies this process. Process ids do not: processes in different containers can share one.
ncast_status process_id(uint64_t (&number)[2]) {
  static std::mutex mutex;
  static uint64_t id[2];
  static pid_t owner = 0;
  const std::lock_guard lock(mutex);
  if (owner != getpid()) {
    if (ncast_status status = bootstrap::random_bytes(&id, sizeof id)) return status;
    owner = getpid();
  }
  std::memcpy(number, id, sizeof id);
  return NCAST_OK;
}

// Finds the allocation that contains `memory`, using the driver because the runtime has no function for it.
ncast_status find_allocation(char* memory, char** begin, size_t* bytes) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &function, 12000, cudaEnableDefault, &found);
  if (error == cudaSuccess && found != cudaDriverEntryPointSuccess) error = cudaErrorSymbolNotFound;
  if (error != cudaSuccess) return cuda_failure("cuMemGetAddressRange", error);
  CUdeviceptr base = 0;
  if (reinterpret_cast<PFN_cuMemGetAddressRange_v3020>(function)(&base, bytes, reinterpret_cast<CUdeviceptr>(memory)) !=
      CUDA_SUCCESS)
    return fail(NCAST_INVALID_ARGUMENT, "%p is not memory allocated by CUDA", memory);
  *begin = reinterpret_cast<char*>(base);
  return NCAST_OK;
}

}  // namespace

ncast_status RankGpu::find(RankGpu* gpu) {
  *gpu = {};
  gpu->machine = bootstrap::own_machine();
  if (ncast_status status = process_id(gpu->process)) return status;
  cudaError_t error = cudaGetDevice(&gpu->device);
  if (error == cudaSuccess) error = cudaDeviceGetPCIBusId(gpu->address, sizeof gpu->address, gpu->device);
  return error == cudaSuccess ? NCAST_OK : cuda_failure("querying the current GPU", error);
}

bool RankGpu::is(const RankGpu& other) const {
  return machine == other.machine && std::strcmp(address, other.address) == 0;
}

bool RankGpu::may_access(const RankGpu& other) const {
  int ordinal = 0, can = 0;
  if (machine != other.machine) return false;
  if (is(other)) return true;
  if (cudaDeviceGetByPCIBusId(&ordinal, other.address) == cudaSuccess &&
      cudaDeviceCanAccessPeer(&can, device, ordinal) == cudaSuccess)
    return can != 0;
  cudaGetLastError();  // clear the error, which only means that the GPU is not visible
  return true;
}

bool RankGpu::has_nvlink_to(const RankGpu& other) const {
  int ordinal = 0, atomics = 0;  // NVLink supports native atomics; other links do not
  if (machine != other.machine) return false;
  if (is(other)) return true;
  if (cudaDeviceGetByPCIBusId(&ordinal, other.address) == cudaSuccess &&
      cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, device, ordinal) == cudaSuccess)
    return atomics != 0;
  cudaGetLastError();
  return false;
}

ncast_status MemoryOffer::make(char* memory, size_t bytes, MemoryOffer* offer) {
  *offer = {};
  if (ncast_status status = RankGpu::find(&offer->gpu)) return status;
  cudaPointerAttributes attributes;
  if (const cudaError_t error = cudaPointerGetAttributes(&attributes, memory); error != cudaSuccess)
    return cuda_failure("querying the memory's attributes", error);
  if (attributes.type != cudaMemoryTypeDevice || attributes.device != offer->gpu.device)
    return fail(NCAST_INVALID_ARGUMENT, "%p is not in the memory of GPU %d", memory, offer->gpu.device);
  char* begin = nullptr;
  size_t allocated = 0;
  if (ncast_status status = find_allocation(memory, &begin, &allocated)) return status;
  offer->offset = static_cast<uint64_t>(memory - begin);
  if (bytes > allocated - offer->offset)
    return fail(NCAST_INVALID_ARGUMENT, "%zu bytes at %p exceed the allocation of %zu bytes at %p", bytes, memory,
                allocated, begin);
  const cudaError_t error = cudaIpcGetMemHandle(&offer->handle, memory);
  cudaGetLastError();  // clear the error, since it is reported here
  if (error != cudaSuccess)
    return fail(NCAST_UNSUPPORTED,
                "%p cannot be shared between processes, because it was not allocated by cudaMalloc: %s", memory,
                cudaGetErrorString(error));
  offer->address = memory;
  offer->bytes = bytes;
  return NCAST_OK;
}

void MappedMemory::unmap() {
  address_ = nullptr;
  if (char* const opened = std::exchange(opened_, nullptr)) cudaIpcCloseMemHandle(opened);
}

ncast_status MappedMemory::map(const RankGpu& own, const MemoryOffer& offer) {
  cudaError_t error = cudaSuccess;
  if (std::memcmp(offer.gpu.process, own.process, sizeof own.process) != 0) {
    error = cudaIpcOpenMemHandle(reinterpret_cast<void**>(&opened_), offer.handle, cudaIpcMemLazyEnablePeerAccess);
    if (error == cudaSuccess) address_ = opened_ + offer.offset;
  } else {
    address_ = offer.address;
    error = offer.gpu.device == own.device ? cudaSuccess : cudaDeviceEnablePeerAccess(offer.gpu.device, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) error = cudaSuccess;
  }
  cudaGetLastError();  // clear the error, since it is reported here
  if (error == cudaSuccess) return NCAST_OK;
  return fail(NCAST_UNSUPPORTED, "GPU %s cannot reach the memory of GPU %s: %s", own.address, offer.gpu.address,
              cudaGetErrorString(error));
}

}  // namespace narrowcast::channel
