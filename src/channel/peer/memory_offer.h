// How a rank shares memory of its GPU with other ranks. It sends them a MemoryOffer, which they map by CUDA IPC, or use
// directly if they are threads of the same process.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "narrowcast/types.h"

namespace narrowcast::channel {

// The GPU and the process of a rank.
struct RankGpu {
  uint64_t machine;     // bootstrap::own_machine()
  uint64_t process[2];  // random; the same for all ranks of a process
  char address[32];     // PCI bus id
  int device;           // ordinal in its own process

  // Describes the current GPU. Errors: CUDA_ERROR, SYSTEM_ERROR.
  static ncast_status find(RankGpu* gpu);
  // Whether both are the same GPU.
  bool is(const RankGpu& other) const;
  // Whether this GPU can access the other's memory. True if the other is in this machine and not visible to this
  // process: then mapping the memory fails if it is not accessible.
  bool may_access(const RankGpu& other) const;
  // Whether both are the same GPU or connected by NVLink. False if the other is not visible to this process.
  bool has_nvlink_to(const RankGpu& other) const;
};

// Device memory that other ranks can map.
struct MemoryOffer {
  RankGpu gpu;
  char* address;  // NULL: none
  uint64_t bytes;
  cudaIpcMemHandle_t handle;  // of the allocation that contains it
  uint64_t offset;            // from the start of the allocation

  // Offers memory of the current GPU, which must be part of a single allocation by cudaMalloc. Errors: INVALID_ARGUMENT
  // (the memory is not on this GPU or exceeds its allocation), UNSUPPORTED (IPC does not support the way in which it
  // was allocated), CUDA_ERROR.
  static ncast_status make(char* memory, size_t bytes, MemoryOffer* offer);
};

// Memory of another rank, mapped into this process.
class MappedMemory {
 public:
  MappedMemory() = default;
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;
  ~MappedMemory() { unmap(); }

  // own: this rank's GPU, which must be current. Errors: UNSUPPORTED; the message names both GPUs.
  ncast_status map(const RankGpu& own, const MemoryOffer& offer);
  void unmap();
  char* address() const { return address_; }  // NULL: not mapped

 private:
  char* address_ = nullptr;
  char* opened_ = nullptr;  // the mapped allocation, if it belongs to another process
};

}  // namespace narrowcast::channel
