// A call of NCCL's that may be taken, as it was made.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nccl/exports.h"
#include "nccl/nccl_abi.h"
#include "nccl/operations.h"

namespace narrowcast::nccl {

struct Call {
  Function function;
  Operation operation;
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = 0;
  int dtype = 0;  // ncclDataType_t: ncast_dtype has the same numbers
  int redop = 0;  // ncclRedOp_t: ncast_redop has the same numbers below first_user_reduction
  int peer = 0;   // of send and recv; else the root
  Comm comm = nullptr;
  CudaStream stream = nullptr;
  const void* config = nullptr;  // ncclCollConfig_t
};

// Bytes of one value, or 0 when the type is none.
size_t value_bytes(int dtype);

// Of the largest piece that one rank sends another: for all_reduce the whole vector.
inline uint64_t piece_bytes(const Call& call) { return call.count * value_bytes(call.dtype); }

// Makes the call of the real NCCL.
int forward(const Call& call);

// While one lives on a thread, the real NCCL is at work there, and what it calls of itself passes through.
class InsideNccl {
 public:
  InsideNccl();
  ~InsideNccl();
  InsideNccl(const InsideNccl&) = delete;
  InsideNccl& operator=(const InsideNccl&) = delete;
  static bool here();
};

}  // namespace narrowcast::nccl
