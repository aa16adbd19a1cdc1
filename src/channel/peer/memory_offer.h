// What a rank tells the others of its GPU and of memory there, and how they come to address it: CUDA IPC between
// processes, the address itself between threads of one.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "narrowcast/types.h"

namespace narrowcast::channel {

// Which GPU a rank has, and in which process.
struct GpuOfRank {
  uint64_t process[2];  // the same for ranks of one process
  char address[32];     // on the PCI bus
  int device;           // as its process counts

  // The current one. Errors: CUDA_ERROR, SYSTEM_ERROR.
  static ncast_status find(GpuOfRank* gpu);
  // A GPU that this process does not see is taken to be reachable: mapping its memory will tell.
  bool may_reach(const GpuOfRank& other) const;
  // By NVLink, or the same one. Of a GPU that this process does not see: no.
  bool is_linked_to(const GpuOfRank& other) const;
};

// Device memory that other ranks may map.
struct MemoryOffer {
  GpuOfRank gpu;
  char* address;  // NULL: none
  uint64_t bytes;
  cudaIpcMemHandle_t handle;  // of the allocation that it lies in
  uint64_t offset;            // in that

  // Of memory on the current GPU, all of it within one allocation of cudaMalloc. Errors: INVALID_ARGUMENT (it is not on
  // that GPU, or not of one allocation), UNSUPPORTED (it was allocated in a way that IPC does not know), CUDA_ERROR.
  static ncast_status make(char* memory, size_t bytes, MemoryOffer* offer);
};

// Memory of another rank as this process addresses it.
class MappedMemory {
 public:
  MappedMemory() = default;
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;
  ~MappedMemory() { unmap(); }

  // own: this rank's GPU, which is current. Errors: UNSUPPORTED, in words of GPUs.
  ncast_status map(const GpuOfRank& own, const MemoryOffer& offer);
  void unmap();
  char* address() const { return address_; }  // NULL: not mapped

 private:
  char* address_ = nullptr;
  char* opened_ = nullptr;  // the allocation, if it is of another process
};

}  // namespace narrowcast::channel
